"""Plugin folders → names. A plugin is one file, read as text and executed only when it is used.

The file's stem is the plugin's name, the first line of its docstring is its summary, and the keyword-only arguments of
its entry point (`Loss`, `Backbone`, `load` or `measure`) are exactly the options that a suite may set. All of that is
read with `ast`: listing plugins or refusing a misspelt option imports nothing, and a broken file matters only if it is
named.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import importlib.util
import inspect
import math
import os
import sys
import types
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from lossbench.core.errors import PluginError, closest, nearest
from lossbench.core.files import content, is_file, is_folder
from lossbench.core.metric import BUILT_IN
from lossbench.core.values import shown
from lossbench.plugins.footprint import (
    PACKAGE,
    Footprint,
    built_in_folder,
    content_digest,
    data_names,
    files_within,
    footprint_of,
    named_files,
    release,
)
from lossbench.plugins.ranges import Choices, Range, RangeError
from lossbench.plugins.ranges import read as read_ranges

if TYPE_CHECKING:  # pydantic, which the model needs, takes longer than listing all plugins
    from lossbench.core.model import Spec

Kind = Literal["loss", "backbone", "dataset", "metric"]
KINDS: tuple[Kind, ...] = ("loss", "backbone", "dataset", "metric")
ENTRY_POINT: dict[Kind, str] = {"loss": "Loss", "backbone": "Backbone", "dataset": "load", "metric": "measure"}
FOLDER: dict[Kind, str] = {"loss": "losses", "backbone": "backbones", "dataset": "datasets", "metric": "metrics"}
ENTRY_POINT_GROUP = "lossbench.plugins"
CLASS_WEIGHTS = "weight"  # the default name of a loss's class weights

TRAINS_WITH = ("torch", "numpy")  # every cell uses them: results may change with their versions

REQUIRED = object()  # marks an option without a default


@dataclass(frozen=True)
class Option:
    """One keyword-only argument of a plugin: its name, its type as a Python object, its default."""

    name: str
    annotation: Any
    annotation_text: str
    default: Any

    def parse(self, value: Any) -> Any:
        """`value` as this option's type, strictly (but a TOML array may become a tuple); ValueError otherwise."""
        import pydantic
        import pydantic_core

        try:
            if not _finite(value):
                raise ValueError("records are JSON, which has no such number")
            as_json = pydantic_core.to_json(value)  # JSON mode: strict about types, yet [1, 2] fits tuple[int, ...]
            return self._adapter.validate_json(as_json, strict=True)
        except (pydantic.ValidationError, ValueError) as error:
            raise ValueError(f"must be {self.annotation_text}, got {shown(value)}") from error

    @cached_property
    def _adapter(self) -> Any:
        """Built once: a sweep uses it thousands of times."""
        import pydantic

        return pydantic.TypeAdapter(self.annotation)


# Options of every dataset: `lossbench.data` applies them after the plugin's own `load`.
SHARED_DATASET_OPTIONS = {
    "train": Option("train", int | None, "int | None", None),
    "per_class": Option("per_class", int | None, "int | None", None),
    "validation": Option("validation", float | None, "float | None", None),
    "holdout": Option("holdout", float | None, "float | None", None),
    "classes": Option("classes", int | list[int] | None, "int | list[int] | None", None),
    "size": Option("size", int | None, "int | None", None),
    "gray": Option("gray", bool, "bool", False),
    "augment": Option("augment", list[Literal["flip", "crop"]], 'a list of "flip" and "crop"', []),
}
UNSET = ("holdout",)  # shared options without a value unless one is given: keys of cells from before they existed stay


@dataclass(frozen=True)
class Plugin:
    """One plugin file."""

    kind: Kind
    name: str
    path: Path

    @cached_property
    def source(self) -> bytes:
        try:
            return content(self.path)
        except OSError as error:
            raise PluginError(f"{self.path}: cannot be read ({error.strerror})") from error

    @property
    def built_in(self) -> bool:
        """Whether it comes with lossbench."""
        return self.path.parent == _built_in(self.kind)

    @property
    def footprint(self) -> Footprint:
        """The modules, libraries and files that the plugin uses."""
        return footprint_of(self.path)

    @property
    def source_hash(self) -> str:
        """A hash of the file, the modules of its own code and the versions of the libraries that these import."""
        return self.footprint.digest()[:16]

    def identity(self, options: Mapping[str, Any]) -> str:
        """What decides a cell's result: `source_hash`, the files that the code or an option names, torch and numpy.

        Everything trains with torch on batches that numpy draws, whether or not the file imports them. The code of
        built-in metrics is covered by the protocol number of the key instead.
        """
        if self.kind == "metric" and self.built_in:
            return BUILT_IN
        digest = hashlib.sha256(self.source_hash.encode())
        for library in TRAINS_WITH:
            digest.update(f"{library}=={release(library)}\0".encode())
        here = [Path.cwd()]
        try:
            inside = files_within(options.values(), here)
        except ValueError as error:
            raise PluginError(f"{self.kind} '{self.name}': {error}") from error
        for path in (*self.footprint.files, *named_files(options.values(), here), *inside):
            digest.update(os.fsencode(path.name) + b"\0" + content_digest(path))
        return digest.hexdigest()[:16]

    def data_files(self, options: Mapping[str, Any], root: Path) -> list[Path]:
        """The files that a dataset's code or options name."""
        if self.built_in:  # these return their `sources`
            return []
        named = named_files([*options.values(), *data_names(self._tree)], [root, Path.cwd()])
        return [*self.footprint.files, *named]

    @cached_property
    def _tree(self) -> ast.Module:
        try:
            return ast.parse(self.source)
        except (SyntaxError, ValueError) as error:
            line = getattr(error, "lineno", None)
            raise PluginError(
                f"{self.path}{f':{line}' if line else ''}: is not valid Python ({error.args[0]})"
            ) from error

    @property
    def doc(self) -> str:
        return inspect.cleandoc(ast.get_docstring(self._tree) or "")

    @property
    def summary(self) -> str:
        return self.doc.partition("\n")[0] or "(no docstring)"

    @property
    def options(self) -> dict[str, Option]:
        """The options by name: those that the file declares, in its order, and those that every dataset has."""
        shared = SHARED_DATASET_OPTIONS if self.kind == "dataset" else {}
        return self.own | {name: option for name, option in shared.items() if name not in self.own}

    @cached_property
    def own(self) -> dict[str, Option]:
        """The options that the file itself declares."""
        arguments = _signature(self._tree, ENTRY_POINT[self.kind])
        if arguments is None and self.kind == "metric" and self.built_in:
            return {}  # one that is computed across records
        if arguments is None:
            raise PluginError(f"{self.path}: defines no '{ENTRY_POINT[self.kind]}', so it is not a {self.kind}")
        own = {}
        for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
            try:
                own[argument.arg] = _option(argument, default, self.constants)
            except ValueError:
                raise PluginError(
                    f"{self.path}:{argument.lineno}: the default of option '{argument.arg}' must be a literal (or the "
                    "name of one in this file), so that it can be read without running the file"
                ) from None
        return own

    @property
    def defined(self) -> bool:
        """Whether the file defines the entry point of this kind."""
        named = (ast.ClassDef, ast.FunctionDef)
        return any(isinstance(node, named) and node.name == ENTRY_POINT[self.kind] for node in self._tree.body)

    @property
    def open_ended(self) -> bool:
        """True if the entry point takes **options, which only the plugin itself can check."""
        arguments = _signature(self._tree, ENTRY_POINT[self.kind])
        return arguments is not None and arguments.kwarg is not None

    @cached_property
    def constants(self) -> dict[str, Any]:
        """Module-level names bound to literals, which defaults may refer to."""
        constants = {}
        for node in self._tree.body:
            for name, value in _bindings(node):
                with contextlib.suppress(ValueError):
                    constants[name] = ast.literal_eval(value)
        return constants

    @cached_property
    def ranges(self) -> dict[str, Range | Choices]:
        """The ranges in RANGES, by option; PluginError if they are invalid."""
        self._require_literal("RANGES")
        try:
            return self.read_ranges(self.constants.get("RANGES", {}))
        except RangeError as error:
            place = f"RANGES['{error.option}']" if error.option else "RANGES"
            raise PluginError(f"{self.path}: {place}: {error}") from error

    def _require_literal(self, name: str) -> None:
        assigned = {target for node in self._tree.body for target, _ in _bindings(node)}
        if name in assigned - self.constants.keys():
            raise PluginError(f"{self.path}: {name} must be a literal, so that it can be read without running the file")

    @property
    def class_weights(self) -> str | None:
        """The dotted name of a loss's class weights (CLASS_WEIGHTS); None if it declares to have none."""
        self._require_literal("CLASS_WEIGHTS")
        written = self.constants.get("CLASS_WEIGHTS", CLASS_WEIGHTS)
        if written is None or (isinstance(written, str) and all(part.isidentifier() for part in _parts(written))):
            return written
        raise PluginError(
            f'{self.path}: CLASS_WEIGHTS must be the dotted name of a parameter, such as "inner.proxies", or None, '
            f"got {written!r}"
        )

    @property
    def names_class_weights(self) -> bool:
        """True if the file declares CLASS_WEIGHTS, which must then be correct."""
        return "CLASS_WEIGHTS" in self.constants

    @cached_property
    def weightless(self) -> bool:
        """True if the text alone shows that a loss has no class weights; False if it must be built to know."""
        if self.class_weights is None or self.names_class_weights:
            return self.class_weights is None
        entry = next((node for node in self._tree.body if isinstance(node, ast.ClassDef) and node.name == "Loss"), None)
        if entry is None or any(ast.unparse(base) not in _PLAIN_BASES for base in entry.bases):
            return False  # it may inherit them
        return not any(_mentioned(node) & {CLASS_WEIGHTS, *_HIDE_NAMES} for node in ast.walk(self._tree))

    def read_ranges(self, written: Any) -> dict[str, Range | Choices]:
        """Parse ranges of this plugin's own options; RangeError names the first invalid one."""
        return read_ranges(written, {name: option.parse for name, option in self.own.items()})

    def parse_options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Every option with its value, in the order of the signature; OptionError names the first invalid one."""
        for name in given:
            if name not in self.options and not self.open_ended:
                raise OptionError(
                    name, f"unknown option '{name}' of {self.kind} '{self.name}'; {nearest(name, self.options)}"
                )
        values: dict[str, Any] = {}
        for name, option in self.options.items():
            if name in given:
                try:
                    values[name] = option.parse(given[name])
                except ValueError as error:
                    raise OptionError(name, f"option '{name}' of {self.kind} '{self.name}' {error}") from error
            elif option.default is REQUIRED:
                raise OptionError(None, f"{self.kind} '{self.name}' needs the option '{name}'")
            elif name not in UNSET or name in self.own:
                values[name] = option.default
        return values | {name: value for name, value in given.items() if name not in values}

    def load(self) -> Any:
        """The plugin's entry point; the file is executed on the first call, under a unique module name."""
        return _load(self)


class OptionError(PluginError, ValueError):
    """An invalid option; `option` is its name, if one key is the cause."""

    def __init__(self, option: str | None, message: str) -> None:
        super().__init__(message)
        self.option = option


class Registry:
    """All known plugins: built-in ones, those in `folders`, those of installed packages.

    Each of `folders` has subfolders `losses/`, `backbones/`, `datasets/` or `metrics/`.
    """

    def __init__(self, folders: Iterable[Path] = ()) -> None:
        self.folders = tuple(dict.fromkeys(_real(Path(folder)) for folder in folders))
        for folder in self.folders:
            if not is_folder(folder):
                raise PluginError(f"{folder}: is not a folder, so no plugins can be read from it")

    @cached_property
    def _found(self) -> dict[tuple[Kind, str], list[Path]]:
        found: dict[tuple[Kind, str], list[Path]] = {}
        for kind in ENTRY_POINT:
            for place in self._places(kind):
                for path in sorted(place.glob("*.py")):
                    if not path.name.startswith(("_", ".")) and is_file(path):
                        found.setdefault((kind, path.stem), []).append(path)
        return found

    def _places(self, kind: Kind) -> list[Path]:
        """The folders that may hold plugins of a kind."""
        others = [folder / FOLDER[kind] for folder in (*self.folders, *_installed())]
        return list(dict.fromkeys(map(_real, (_built_in(kind), *others))))

    def _unreadable(self, kind: Kind, name: str) -> list[Path]:
        """Paths of this name that are not files (a FIFO, a link to itself): reading them says what is wrong."""
        paths = [place / f"{name}.py" for place in self._places(kind)] if os.sep not in name else []
        return [path for path in paths if os.path.lexists(path) and not is_folder(path)]

    def names(self, kind: Kind) -> list[str]:
        return sorted(name for found_kind, name in self._found if found_kind == kind)

    def find(self, kind: Kind, name: str) -> Plugin:
        paths = self._found.get((kind, name)) or self._unreadable(kind, name)
        if not paths:
            models = kind == "backbone" and closest(name, self.names(kind)) is None
            hint = f"; a model of timm is written timm[model={name}]" if models else ""
            raise PluginError(f"unknown {kind} '{name}'; {nearest(name, self.names(kind))}{hint}")
        if len({Plugin(kind, name, path).source for path in paths}) > 1:  # a copy of the same file is no conflict
            listed = " and ".join(str(path) for path in paths)
            raise PluginError(f"two plugins claim the {kind} name '{name}': {listed}; rename one")
        return _plugin(kind, name, paths[0], paths[0].stat().st_mtime_ns)

    def built_in(self, kind: Kind) -> list[str]:
        """The names of the plugins of a kind that come with lossbench."""
        return sorted({path.stem for path in _built_in(kind).glob("*.py") if not path.name.startswith(("_", "."))})

    def unchanged(self, kind: Kind, spec: Spec) -> bool:
        """Whether a plugin decides results as it did when `spec` was planned."""
        return self.find(kind, spec.name).identity(spec.options) == spec.source


@lru_cache(maxsize=1024)
def _plugin(kind: Kind, name: str, path: Path, modified: int) -> Plugin:
    del modified  # only part of the cache key: an edited file is a new plugin
    return Plugin(kind, name, path)


def _real(path: Path) -> Path:
    """The path without links; Path.resolve raises for a link that leads to itself."""
    return Path(os.path.realpath(path))


def _built_in(kind: Kind) -> Path:
    """The folder of built-in plugins."""
    inside = {"dataset": PACKAGE / "data" / "sets", "metric": PACKAGE / "metrics"}
    return inside.get(kind) or built_in_folder(FOLDER[kind])


@lru_cache(maxsize=1)
def _installed() -> tuple[Path, ...]:
    """Folders of installed packages that declare the entry point group; the packages are not imported."""
    from importlib.metadata import entry_points

    folders = []
    for entry in entry_points(group=ENTRY_POINT_GROUP):
        spec = None
        with contextlib.suppress(ImportError, ValueError):  # a package that is broken must not stop every command
            spec = importlib.util.find_spec(entry.module)
        folders += [Path(place) for place in (spec.submodule_search_locations or [] if spec else [])]
    return tuple(folders)


def _bindings(node: ast.stmt) -> list[tuple[str, ast.expr]]:
    """The names that an assignment binds, each with its value: `A = 1`, `A: int = 1`, `A, B = 1, 2`."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target, value = node.targets[0], node.value
    elif isinstance(node, ast.AnnAssign) and node.value:
        target, value = node.target, node.value
    else:
        return []
    pairs = [(target, value)]
    if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        pairs = list(zip(target.elts, value.elts, strict=True))
    return [(name.id, value) for name, value in pairs if isinstance(name, ast.Name)]


_PLAIN_BASES = ("nn.Module", "Module", "torch.nn.Module")
_HIDE_NAMES = ("setattr", "register_parameter", "register_buffer", "__getattr__", "__dict__")  # attributes by any name


def _mentioned(node: ast.AST) -> set[str]:
    """The names that a node of code mentions."""
    written = (getattr(node, field, None) for field in ("attr", "id", "name", "value"))
    return {name for name in written if isinstance(name, str)}


def _parts(path: str) -> list[str]:
    """The names of a dotted path; the numbers of a list of parameters count as names."""
    return [f"_{part}" if part.isdecimal() else part for part in path.split(".")]


def _signature(tree: ast.Module, entry: str) -> ast.arguments | None:
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == entry:
            return node.args
        if isinstance(node, ast.ClassDef) and node.name == entry:
            for member in node.body:
                if isinstance(member, ast.FunctionDef) and member.name == "__init__":
                    return member.args
    return None


_TYPES: dict[str, Any] = {
    **{kind.__name__: kind for kind in (bool, int, float, str, list, tuple, dict)},
    "Any": Any,
    "Literal": Literal,
    "None": None,
}


def _option(argument: ast.arg, default: ast.expr | None, constants: Mapping[str, Any]) -> Option:
    text = ast.unparse(argument.annotation) if argument.annotation else "anything"
    try:  # evaluated in a namespace of plain types: no code of the plugin runs
        annotation = eval(text, {"__builtins__": {}}, _TYPES) if argument.annotation else Any
    except Exception:
        annotation = Any
    value: Any = REQUIRED
    if default is not None:
        if isinstance(default, ast.Name) and default.id in constants:
            value = constants[default.id]
        else:
            value = ast.literal_eval(default)
    return Option(argument.arg, annotation, text, value)


_loaded: dict[tuple[Path, bytes], Any] = {}


def _load(plugin: Plugin) -> Any:
    """Execute the text that was hashed: Python's loader would trust a byte-compiled file of the same second."""
    if (plugin.path, plugin.source) in _loaded:
        return _loaded[plugin.path, plugin.source]
    kind, path = plugin.kind, plugin.path
    text = hashlib.sha256(os.fsencode(path) + b"\0" + plugin.source).hexdigest()[:16]
    module = types.ModuleType(f"lossbench_{kind}_{path.stem}_{text}", plugin.doc)
    module.__file__ = str(path)
    sys.modules[module.__name__] = module  # before execution: dataclasses and pickling look modules up by name
    try:
        exec(compile(plugin.source, path, "exec"), module.__dict__)
        entry = getattr(module, ENTRY_POINT[kind], None)
        if not callable(entry):
            raise PluginError(f"{path}: defines no '{ENTRY_POINT[kind]}', so it is not a {kind}")
    except PluginError:
        del sys.modules[module.__name__]
        raise
    except (Exception, SystemExit) as error:
        del sys.modules[module.__name__]
        raise PluginError(f"{path}: fails on import ({type(error).__name__}: {error})") from error
    _loaded[plugin.path, plugin.source] = entry
    return entry


def _finite(value: Any) -> bool:
    if isinstance(value, list | tuple | dict):
        return all(_finite(item) for item in (value.values() if isinstance(value, dict) else value))
    return not isinstance(value, float) or math.isfinite(value)
