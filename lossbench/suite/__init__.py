"""A TOML file → a validated `Suite`."""
