"""Everything besides options that decides a plugin's results: source files, library versions, files that it names.

The footprint of a plugin file is found by reading it, never by running it:

    sources      the plugin file and every module of its own code that it imports, at any depth: modules of lossbench,
                 of the plugin's package, and modules outside site-packages (including editable installs)
    libraries    installed packages that these import; identified by their version
    files        data files that the sources name in a string with a suffix (`centres.npz`): absolute, beside the
                 source, or in the working folder; logs are excluded, since a plugin writes them itself

A file name that is composed at run time cannot be found this way: write it as a literal or as an option.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.util
import itertools
import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parents[1]
INSTALLED = ("site-packages", "dist-packages")  # folders of packages that are identified by their version
MOST_FILES = 1000  # of a folder that an option names
WRITTEN = ("", ".log", ".pid", ".lock", ".tmp")  # suffixes of files that a plugin rather writes than reads
LONGEST_NAME = 1024  # characters of a string that may name a file
CODE = (".py", ".pyc", ".so", ".pyd")
ALIASES = {"PIL": "pillow", "sklearn": "scikit-learn"}  # of our own imports: looking up all names takes half a second


@dataclass(frozen=True)
class Footprint:
    """The code and files that a plugin uses; by module name, so that a copy in another folder is equal."""

    sources: Mapping[str, Path]  # by the module's name; the plugin itself is ""
    libraries: Mapping[str, str]  # version by distribution
    modules: tuple[str, ...]  # the modules of libraries, as they are imported
    files: tuple[Path, ...]

    def digest(self) -> str:
        """sha256 over the code: the content of sources, the versions of libraries."""
        found = hashlib.sha256()
        for name, path in sorted(self.sources.items()):
            found.update(f"{name}\0".encode() + content_digest(path))
        for name, number in sorted(self.libraries.items()):
            found.update(f"{name}=={number}\0".encode())
        return found.hexdigest()

    def stamps(self) -> tuple[Any, ...]:
        return tuple(_stamp(path) for path in (*self.sources.values(), *self.files))


def footprint_of(plugin: Path) -> Footprint:
    """The footprint of a plugin file; recomputed when one of its files has changed."""
    known = _known.get(plugin)
    if known is None or known[1] != known[0].stamps():
        search = _Search(plugin)
        search.source("", plugin)
        found = search.found()
        _known[plugin] = known = found, found.stamps()
    return known[0]


_known: dict[Path, tuple[Footprint, tuple[Any, ...]]] = {}


def named_files(values: Iterable[Any], folders: Iterable[Path]) -> list[Path]:
    """The existing files that option values name: absolute, below the home folder, or in one of `folders`."""
    places = list(folders)
    found = (next((path for path in _candidates(text, places) if path.is_file()), None) for text in _texts(values))
    return [path for path in dict.fromkeys(found) if path]


def files_within(values: Iterable[Any], folders: Iterable[Path]) -> list[Path]:
    """The files in folders that option values name as paths; ValueError if there are too many."""
    found: list[Path] = []
    for text in _texts(values):
        for path in _candidates(text, folders) if os.sep in text or text.startswith((".", "~")) else ():
            if path.is_dir():
                found += itertools.islice((file for file in path.rglob("*") if file.is_file()), MOST_FILES + 1)
            if len(found) > MOST_FILES:
                raise ValueError(f"'{text}' names a folder with more than {MOST_FILES} files; name a file in it")
    return sorted(found)


def content_digest(path: Path) -> bytes:
    """sha256 of a file's content; reread only if its size or time has changed."""
    return _content_digest(path, _stamp(path))


@lru_cache(maxsize=4096)
def _content_digest(path: Path, stamp: Any) -> bytes:
    del stamp  # part of the cache key only
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").digest()
    except OSError as error:  # missing or unreadable: opening it will raise a clear error
        return f"unreadable: {error.errno}".encode()


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino


@dataclass
class _Search:
    """The search for everything that a plugin imports."""

    plugin: Path
    sources: dict[str, Path] = field(default_factory=dict)
    libraries: dict[str, str] = field(default_factory=dict)
    modules: dict[str, None] = field(default_factory=dict)
    files: dict[Path, None] = field(default_factory=dict)
    seen: set[tuple[str, Path]] = field(default_factory=set)  # imports, and the folder of who imports

    def found(self) -> Footprint:
        return Footprint(self.sources, self.libraries, tuple(self.modules), tuple(self.files))

    def source(self, name: str, path: Path) -> None:
        """Add one file of the plugin's own code, and what it imports."""
        if name in self.sources or path in self.sources.values():
            return
        self.sources[name] = path
        if path.suffix != ".py":
            return
        if PACKAGE not in path.parents and not _is_built_in(path):
            self.files.update(dict.fromkeys(_literal_files(_parsed(path, _stamp(path)), path.parent)))
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for wanted in _imports(path, _stamp(path), package):
            if (wanted, path.parent) not in self.seen:
                self.seen.add((wanted, path.parent))
                self.module(wanted, path)

    def module(self, name: str, importer: Path) -> None:
        """Add what `import NAME` in the file `importer` loads."""
        top, *rest = name.split(".")
        if top in sys.stdlib_module_names:
            return
        if top == "lossbench":
            self.of_lossbench(rest)
            return
        start, folders = _top(top, (importer.parent, self.plugin.parent, self.plugin.parent.parent))
        if start is None and not folders:
            return  # not installed: importing it will raise a clear error
        places = [start] if start else folders
        own = any(folder in self.plugin.parents for folder in folders)
        if not own and any(part in INSTALLED for place in places for part in place.parts) and (known := release(top)):
            self.libraries[known[0]] = known[1]
            self.modules[name] = None
            return
        for dotted, path in _walk(top, rest, start, folders):
            self.source(dotted, path)

    def of_lossbench(self, rest: list[str]) -> None:
        """Add a module of this package; `import lossbench` can build any built-in plugin, so it adds them all."""
        files = list(_walk("lossbench", rest, None, [PACKAGE])) if rest else []
        for dotted, path in files:
            self.source(dotted, path)
        if not files:
            for folder in (built_in_folder("losses"), built_in_folder("backbones")):
                for path in sorted(folder.glob("*.py")):
                    self.source(f"lossbench {folder.name}.{path.stem}", path)


def built_in_folder(name: str) -> Path:
    """The folder of built-in plugins: inside an installed package, beside it in a checkout."""
    inside = PACKAGE / name
    return inside if inside.is_dir() else PACKAGE.parent / name


def imported(tree: ast.Module, package: str = "") -> Iterator[str]:
    """The modules that import statements name, anywhere in a file of `package`.

    `from a import b` may name a module a.b or something inside a: both are given.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join(filter(None, (*parents, base)))
            names = [f"{base}.{alias.name}" for alias in node.names if alias.name != "*"]
            if base and (base != "lossbench" or not names):  # which only re-exports names
                yield base
            yield from names if base else ()
        elif isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant):
            called = getattr(node.func, "attr", getattr(node.func, "id", ""))
            if called in ("import_module", "__import__") and isinstance(node.args[0].value, str):
                yield node.args[0].value


@lru_cache(maxsize=1024)
def _imports(path: Path, stamp: Any, package: str) -> tuple[str, ...]:
    """The modules that a file of `package` imports. Most plugins import the same modules of lossbench."""
    return tuple(dict.fromkeys(imported(_parsed(path, stamp), package)))


@lru_cache(maxsize=1024)
def _parsed(path: Path, stamp: Any) -> ast.Module:
    del stamp  # part of the cache key only
    try:
        return ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):  # importing it will raise a clear error
        return ast.Module([], [])


def _top(name: str, beside: Iterable[Path]) -> tuple[Path | None, list[Path]]:
    """The file of a top-level module, or the folders of a package; on the path, else beside the plugin."""
    try:
        spec = importlib.util.find_spec(name)
    except (ImportError, ValueError, AttributeError):
        spec = None
    if spec is not None:
        folders = [Path(place) for place in spec.submodule_search_locations or ()]
        return (None, folders) if folders or not spec.origin else (Path(spec.origin), [])
    for folder in beside:  # a plugin may add its own folder to the path
        if (folder / name).is_dir():
            return None, [folder / name]
        if (folder / f"{name}.py").is_file():
            return folder / f"{name}.py", []
    return None, []


def _walk(top: str, rest: list[str], start: Path | None, folders: list[Path]) -> Iterator[tuple[str, Path]]:
    """The files that importing top.rest… runs, outermost package first; stops at a name that is not a module."""
    if start is not None:
        yield top, start
        return
    if top != "lossbench":  # whose own __init__ only re-exports names
        yield from ((top, folder / "__init__.py") for folder in folders if (folder / "__init__.py").is_file())
    dotted = top
    for part in rest:
        dotted = f"{dotted}.{part}"
        inner = [folder / part for folder in folders if (folder / part).is_dir()]
        alone = [path for folder in folders for path in folder.glob(f"{part}.*") if path.suffix in CODE]
        folders = inner
        if inner:
            yield from ((dotted, folder / "__init__.py") for folder in inner if (folder / "__init__.py").is_file())
        elif alone:
            yield dotted, min(alone)
            return
        else:
            return


@lru_cache(maxsize=256)
def release(module: str) -> tuple[str, str] | None:
    """The installed distribution that has a top-level module, and its version without the tag of the build (+cpu)."""
    name = ALIASES.get(module, module)
    try:
        return name, version(name).partition("+")[0]
    except PackageNotFoundError:  # the distribution has another name than its module, like pillow
        names = sorted(_distributions().get(module, ()))
    return (names[0], version(names[0]).partition("+")[0]) if names else None


@lru_cache(maxsize=1)
def _distributions() -> Mapping[str, list[str]]:
    return packages_distributions()


def _is_built_in(path: Path) -> bool:
    return path.parent in (built_in_folder("losses"), built_in_folder("backbones"))


def _literal_files(tree: ast.Module, folder: Path) -> Iterator[Path]:
    """The existing files that string literals of a source name."""
    for text in data_names(tree):
        yield from (path for path in _candidates(text, [folder, Path.cwd()]) if path.is_file())


def data_names(tree: ast.Module) -> Iterator[str]:
    """The string literals of a source that may name a data file."""
    for node in ast.walk(tree):
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and Path(text).suffix.lower() not in (*CODE, *WRITTEN):
            yield text


def _candidates(text: str, folders: Iterable[Path]) -> Iterator[Path]:
    if not 0 < len(text) <= LONGEST_NAME or any(character < " " for character in text):
        return
    path = Path(os.path.expanduser(text))  # noqa: PTH111  # Path.expanduser raises for an unknown user
    for candidate in [path] if path.is_absolute() else [folder / path for folder in folders]:
        with contextlib.suppress(OSError, ValueError):  # not a valid file name
            candidate.stat()
            yield candidate


def _texts(values: Iterable[Any]) -> Iterator[str]:
    for value in values:
        if isinstance(value, str):
            yield value
        elif isinstance(value, Mapping):
            yield from _texts(value.values())
        elif isinstance(value, list | tuple):
            yield from _texts(value)
