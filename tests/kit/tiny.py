"""A dataset of one file that a server on the loopback publishes, and processes that download it."""

from __future__ import annotations

import hashlib
import random
import subprocess
import sys
import time
from pathlib import Path

from lossbench.data.download.sources import File, Source

BODY = random.Random(0).randbytes(1_000_000)


def offer(server, body, place="set/file.bin", *, addresses=None, **options):
    """A set of one file that the server publishes."""
    server.bodies[Path(place).name] = body
    file = File(
        place,
        tuple(addresses or [server.address(Path(place).name)]),
        len(body),
        hashlib.sha256(body).hexdigest(),
        hashlib.md5(body).hexdigest(),
        **options,
    )
    return Source("tiny", "A set", 1, 1, "none", "nobody", "", (file,))


def contents(folder):
    """Every file below a folder, hidden ones too."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if not path.is_dir())


class Told:
    def __init__(self, stop_at=None, error=KeyboardInterrupt):
        self.started, self.steps, self.stop_at, self.error = [], [], stop_at, error

    def start(self, what, done, total):
        self.started.append((what, done, total))

    def at(self, done):
        self.steps.append(done)
        if self.stop_at is not None and done >= self.stop_at:
            raise self.error


def one_sentence(said, address, place):
    return "\n" not in said and address in said and str(place) in said and said.startswith("tiny: ")


# The real command line in a process of its own, whose one set is published on the loopback.
PROCESS = """
import sys
from lossbench.data.download import sources
from lossbench.data.download.sources import File, Piece, Source
sources.SOURCES["tiny"] = {source!r}
from lossbench.cli.commands import main
main()
"""


def process(source, *arguments, **options):
    code = PROCESS.format(source=source)
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], **options)


def until(condition, seconds=60):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.01)
