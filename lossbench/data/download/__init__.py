"""Publishers' files: where they are, downloading, unpacking, checking."""
