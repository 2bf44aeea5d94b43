"""Plugin files → names, options and source identity; scaffolding and the conformance check."""
