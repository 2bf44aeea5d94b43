"""Where suite files are: a path, or the name of one that comes with lossbench."""

from __future__ import annotations

from pathlib import Path

from lossbench.errors import SuiteError, nearest


def locate(name: str) -> Path:
    """The suite file that a user means: a path, or the name of a built-in suite."""
    path = Path(name)
    if path.is_file():
        return path
    known = built_in()
    if path.parent == Path() and (stem := path.name.removesuffix(".toml")) in known:
        return known[stem]
    if path.is_dir():
        raise SuiteError(f"{name}: is a folder, not a suite file")
    raise SuiteError(f"{name}: no such file, and no built-in suite of that name; {nearest(path.stem, known)}")


def built_in() -> dict[str, Path]:
    """The suites that come with lossbench, by name."""
    package = Path(__file__).parent
    folder = package / "suites" if (package / "suites").is_dir() else package.parent / "suites"
    return {path.stem: path for path in sorted(folder.glob("*.toml"))}
