"""Datasets with a known publisher → files on this machine."""
