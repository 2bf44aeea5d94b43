"""The command line."""

import sys
from contextlib import nullcontext

from lossbench.core import ahead

UNTRAINED = {"-h", "--help", "-n", "--dry-run"}  # options with which `lossbench run` trains nothing


def main() -> None:
    """Entry point. For a run, torch is being imported while the rest is."""
    trains = sys.argv[1:2] == ["run"] and UNTRAINED.isdisjoint(sys.argv)
    with ahead.launching() if trains else nullcontext():
        from lossbench.cli import commands

        commands.main()
