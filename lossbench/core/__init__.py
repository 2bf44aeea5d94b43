"""Data model, errors, labels, random streams, files: used by all other packages. No torch."""
