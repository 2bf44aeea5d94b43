"""Publishers' file formats → arrays."""
