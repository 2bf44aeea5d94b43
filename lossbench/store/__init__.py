"""Records on disk: one folder per cell, written atomically; tables and merging."""
