"""The C++ compiler that torch.compile uses, found without importing torch."""

from __future__ import annotations

import os
import platform
import shutil

DEFAULT = "clang++" if platform.system() == "Darwin" else "g++"


def name() -> str:
    """The compiler that torch calls: $CXX, else the usual one of this system."""
    return os.environ.get("CXX") or DEFAULT


def found() -> str | None:
    """Its path; None if this machine has none."""
    return shutil.which(name())


def missing() -> str:
    """Why nothing can be compiled here: words that follow a colon."""
    return f"no C++ compiler found ({name()})"
