"""A `Suite` → cells: filters, shards, forecast."""
