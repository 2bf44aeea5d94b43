"""The optimizers that a schedule may name: "sgd", and those of timm with their options.

timm's source is read with `ast`, as plugin files are: importing it takes seconds, and planning needs none of it.
"""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path

from lossbench.core.errors import PluginError, nearest

SGD = "sgd"  # torch's, with classical momentum; timm's own `sgd` has Nesterov momentum, which is an option here
LOOKAHEAD = "lookahead_"  # before any name: timm's wrapper
SCHEDULE = ("lr", "weight_decay")  # keys of the schedule, not options of the optimizer
INTERNAL = ("self", "params", "maximize", "differentiable", "capturable")  # without a meaning for a suite
RANDOM = ("Kron",)  # classes that keep a random generator of their own, which a resumed cell would not continue


@dataclass(frozen=True)
class Optimizer:
    """An optimizer by name: the class that implements it, and whether it has the schedule's `momentum`.

    `unusable` says why it cannot be used here.
    """

    place: tuple[str, ...]
    momentum: bool
    unusable: str = ""

    @property
    def options(self) -> dict[str, object]:
        """Its options with their defaults; None for those that are not numbers, texts or tuples of them."""
        arguments = _arguments(*self.place)
        return {name: value for name, value in arguments.items() if name not in (*SCHEDULE, *INTERNAL)}


def find(name: str) -> Optimizer:
    """The optimizer of this name; PluginError if it is unknown or cannot be used."""
    optimizers = known()
    plain = name.removeprefix(LOOKAHEAD)
    if plain not in optimizers:
        raise PluginError(f"unknown optimizer '{name}'; {nearest(plain, optimizers)}")
    if reason := optimizers[plain].unusable:
        raise PluginError(f"optimizer '{name}' cannot be used: {reason}")
    return optimizers[plain]


@cache
def known() -> Mapping[str, Optimizer]:
    """All optimizers by name, from the `OptimInfo(name=…, opt_class=…)` of timm's registry."""
    folder = _folder("timm")
    tree = ast.parse((folder / "_optim_factory.py").read_text(encoding="utf-8"))
    modules = {
        alias.name: str(node.module)
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.level == 1
        for alias in node.names
    }
    found = {SGD: Optimizer(("torch", "sgd", "SGD"), momentum=True)}
    for entry in _entries(tree):
        name = str(_constant(entry["name"]))
        written = entry["opt_class"]
        momentum = "has_momentum" in entry and bool(_constant(entry["has_momentum"]))
        if isinstance(written, ast.Attribute):  # torch.optim.AdamW
            optimizer = Optimizer(("torch", written.attr.lower(), written.attr), momentum)
        elif isinstance(written, ast.Name):
            optimizer = Optimizer(("timm", modules[written.id], written.id), momentum, _unusable(entry, written.id))
        else:
            package = str(_constant(written)).partition(".")[0]
            optimizer = Optimizer((), momentum, f"it needs the package {package}, which lossbench does not support")
        found.setdefault(name, optimizer)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "register_alias":
            alias, target = map(_constant, node.args)
            found[str(alias)] = found[str(target)]
    return found


def timm_version(name: str) -> str | None:
    """The version of timm that decides what this optimizer does; None for torch's SGD."""
    return None if name == SGD else version("timm")


def _unusable(entry: Mapping[str, ast.expr], implementation: str) -> str:
    if "second_order" in entry and _constant(entry["second_order"]):
        return "it needs second derivatives"
    return "its random numbers would differ after an interruption" if implementation in RANDOM else ""


def _entries(tree: ast.Module) -> Iterator[dict[str, ast.expr]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "OptimInfo":
            first = dict(zip(("name", "opt_class"), node.args, strict=False))
            yield first | {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg}


def _constant(node: ast.expr) -> object:
    return node.value if isinstance(node, ast.Constant) else None


def _literal(node: ast.expr | None) -> object:
    try:
        return None if node is None else ast.literal_eval(node)
    except ValueError:
        return None


@cache
def _arguments(package: str, module: str, name: str) -> dict[str, object]:
    """The arguments of a class's constructor with their defaults; None for those without a literal one."""
    tree = ast.parse((_folder(package) / f"{module}.py").read_text(encoding="utf-8"))
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            for method in node.body:
                if isinstance(method, ast.FunctionDef) and method.name == "__init__":
                    found: dict[str, object] = dict.fromkeys(each.arg for each in method.args.args)
                    last = list(found)[len(found) - len(method.args.defaults) :]
                    found |= {name: _literal(node) for name, node in zip(last, method.args.defaults, strict=True)}
                    named = zip(method.args.kwonlyargs, method.args.kw_defaults, strict=True)
                    return found | {each.arg: _literal(node) for each, node in named}
    raise PluginError(f"{package}.optim.{module}: no class {name}")


def _folder(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    assert spec and spec.origin  # timm and torch are requirements of lossbench
    return Path(spec.origin).parent / "optim"
