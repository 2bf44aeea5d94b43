"""The command line."""

from lossbench.cli.commands import main

__all__ = ["main"]
