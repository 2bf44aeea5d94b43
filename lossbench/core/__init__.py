"""Data model, errors, labels, random streams, files: what every other room builds on. No torch."""
