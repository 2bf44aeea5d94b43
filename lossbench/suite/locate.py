"""Where suite files are: a path, or the name of one that comes with lossbench."""

from __future__ import annotations

import stat
from pathlib import Path

from lossbench.core.errors import SuiteError, nearest
from lossbench.core.files import not_a_file


def locate(name: str) -> Path:
    """The suite file that a user means: a path, or the name of a built-in suite."""
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
    """The `st_mode` of what is there; None when nothing is."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    except OSError as error:  # a link that leads to itself, a folder that may not be entered, a name too long
        raise SuiteError(f"{path}: cannot be read ({error.strerror})") from error


def built_in() -> dict[str, Path]:
    """The suites that come with lossbench, by name."""
    package = Path(__file__).parents[1]
    folder = package / "suites" if (package / "suites").is_dir() else package.parent / "suites"
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}
