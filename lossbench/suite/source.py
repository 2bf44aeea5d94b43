"""Where a suite comes from: a file, the name of a built-in suite, or a dict."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lossbench.core.errors import SuiteError, nearest
from lossbench.core.files import content, not_a_file
from lossbench.core.values import flaw

SuiteLike = str | os.PathLike[str] | Mapping[str, Any]


@dataclass(frozen=True)
class Source:
    """The TOML text of a suite."""

    text: str
    name: str  # as errors call it: the path, or "suite" for a dict
    folder: Path  # losses/, backbones/ and datasets/ are looked for here
    argument: str  # what `lossbench run` takes to run it again


def open_suite(suite: SuiteLike) -> Source:
    """The text of a suite given as a path, the name of a built-in suite, or a dict."""
    if isinstance(suite, Mapping):
        return Source(_toml(suite), "suite", Path.cwd(), "suite.toml")
    path = locate(os.fspath(suite))
    try:
        text = content(path).decode("utf-8-sig")  # some editors begin a file with a byte order mark
    except (OSError, UnicodeDecodeError) as error:
        raise SuiteError(f"{path}: cannot be read ({getattr(error, 'strerror', error)})") from error
    return Source(text, str(path), path.parent, os.fspath(suite))


def locate(name: str) -> Path:
    """The suite file: a path, or the name of a built-in suite."""
    path = Path(name)
    mode = _mode(path)
    if mode and stat.S_ISREG(mode):
        return path
    known = built_in()
    if path.parent == Path() and (stem := path.name.removesuffix(".toml")) in known:
        return known[stem]
    if mode:
        raise SuiteError(f"{name}: cannot be read as a suite ({not_a_file(mode)})")
    raise SuiteError(f"{name}: no such file, and no built-in suite of that name; {nearest(path.stem, known)}")


def _mode(path: Path) -> int | None:
    """The `st_mode` of a path; None if nothing is there."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    except OSError as error:  # a link to itself, a folder that may not be entered, a name that is too long
        raise SuiteError(f"{path}: cannot be read ({error.strerror})") from error


def built_in() -> dict[str, Path]:
    """The built-in suites by name."""
    package = Path(__file__).parents[1]
    folder = package / "suites" if (package / "suites").is_dir() else package.parent / "suites"
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}


def _toml(suite: Mapping[str, Any]) -> str:
    """A dict as the TOML that a run folder keeps."""
    suite = dict(suite)
    if wrong := flaw(suite):
        raise SuiteError(f"suite: {'.'.join(map(str, wrong[0]))}: {wrong[1]}")
    return "".join(
        f"{toml_value(str(key))} = {toml_value(value)}\n" for key, value in suite.items() if value is not None
    )


def toml_value(value: Any) -> str:
    """A value as TOML on one line."""
    if isinstance(value, Mapping):
        inside = (f"{toml_value(str(key))} = {toml_value(item)}" for key, item in value.items() if item is not None)
        return f"{{ {', '.join(inside)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(toml_value, value))}]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str | bool) else repr(value)
