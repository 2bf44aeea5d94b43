"""Saved states of running cells, from which they resume after an interruption."""

from __future__ import annotations

import hashlib
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lossbench.core.files import write_atomically

STATE_FORMAT = b"lossbench-state-2"  # another number when what the file holds changes


class DamagedError(ValueError):
    """A saved state that must not be used; its text says why."""


@dataclass(frozen=True)
class Checkpointer:
    """The file for the state of the cell `key`, and the seconds between two writes.

    The file is one line (format, key, sha256 of the key and of what follows) and a .pt file.
    """

    path: Path
    key: str
    every: float = 60.0

    def read(self) -> dict[str, Any] | None:
        """The state that an earlier process left, None if there is none; DamagedError if it was altered since."""
        if not self.path.exists():
            return None
        if not self.path.is_file():
            raise DamagedError("it is not a file")
        try:
            header, _, content = self.path.read_bytes().partition(b"\n")
            if not header.startswith(STATE_FORMAT + b" "):
                raise DamagedError("it is not in the format of this version")
            if header != self._header(content):
                raise DamagedError("it belongs to another cell, or was altered")
            state: dict[str, Any] = torch.load(io.BytesIO(content), weights_only=True)
        except DamagedError:
            raise
        except Exception as error:  # the disk, or one of torch's many ways to fail
            raise DamagedError(f"it cannot be read: {error}") from error
        return state

    def _header(self, content: bytes) -> bytes:
        digest = hashlib.sha256(self.key.encode() + b"\n" + content).hexdigest()
        return b" ".join([STATE_FORMAT, self.key.encode(), digest.encode()])

    def write(self, state: dict[str, Any]) -> None:
        """Replace the file by one rename. If the disk is full, the cell continues without a checkpoint."""
        content = as_bytes(state)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(self.path, self._header(content) + b"\n" + content)
        except OSError as error:
            print(f"no checkpoint was kept: {error}")


def as_bytes(state: dict[str, Any]) -> bytes:
    """The content of a .pt file."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    return buffer.getvalue()
