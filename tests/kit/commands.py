"""The command line in this process: as fast as a function, with what a process would have printed."""

from __future__ import annotations

import contextlib
import io
import signal
import subprocess
import sys
from pathlib import Path
from unittest import mock

from lossbench.cli import main


def invoke(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """`lossbench ARGUMENTS` in the working folder of this process."""
    written = ["lossbench", *map(str, arguments)]
    out, err = io.StringIO(), io.StringIO()
    before = signal.getsignal(signal.SIGTERM)
    code = None
    try:
        with mock.patch.object(sys, "argv", written), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as end:
        code = end.code
    finally:
        signal.signal(signal.SIGTERM, before)
    return subprocess.CompletedProcess(written, int(code or 0), out.getvalue(), err.getvalue())
