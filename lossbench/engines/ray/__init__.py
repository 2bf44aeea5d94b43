"""Cells on a Ray cluster."""
