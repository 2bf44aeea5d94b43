"""Records → every number that a report states, each computed once."""
