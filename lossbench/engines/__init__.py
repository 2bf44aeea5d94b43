"""Where cells run. `local`: one process a cell on this machine, forked from a server that has torch loaded."""
