"""Sections → files: Markdown, HTML, LaTeX, CSV and JSON."""
