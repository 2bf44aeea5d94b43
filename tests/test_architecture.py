"""The rooms of docs/architecture.md: imports go one way only, and what must start fast imports no torch."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "lossbench"

# From the top down: a room may import from itself and from the rooms before it.
ROOMS = [
    *("core", "stats", "plugins", "data", "suite", "metrics", "tasks", "training", "plan", "store", "engines"),
    *("analysis", "report", "api", "cli"),
]

# Rooms and modules that must not pull in torch, not even through what they import.
TORCH_FREE = [
    *("core.model", "stats", "plugins.registry", "suite.reading", "plan.job", "store.records", "analysis.results"),
    *("report.sections", "report.output.markdown", "api", "cli.commands"),
]


def modules() -> Iterator[tuple[str, Path]]:
    """The dotted name of every module of the package, and its file."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"), path


MODULES = dict(modules())


def imports_of(path: Path) -> set[str]:
    """The modules of this package that a module imports, at any depth of nesting."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            named = {f"{node.module}.{alias.name}" for alias in node.names}
            inner = {name for name in named if name.removeprefix("lossbench.") in MODULES}
            found |= inner or {node.module}
    return {name.removeprefix("lossbench.") for name in found if name.startswith("lossbench.")}


def room_of(module: str) -> str:
    return module.partition(".")[0]


@pytest.mark.parametrize("module", [name for name in MODULES if room_of(name) in ROOMS])
def test_a_room_imports_only_from_the_rooms_above_it(module):
    place = ROOMS.index(room_of(module))
    used = {room_of(name) for name in imports_of(MODULES[module])} - {"margin", "fused"}
    assert used <= set(ROOMS[: place + 1])


def test_every_module_is_in_a_room_or_part_of_the_public_kit():
    assert {room_of(name) for name in MODULES} == {*ROOMS, "__init__", "margin", "fused"}


def test_no_modules_import_each_other_in_a_circle():
    graph = {name: {other for other in imports_of(path) if other in MODULES} for name, path in MODULES.items()}
    while ready := [name for name, needs in graph.items() if not needs & (graph.keys() - {name})]:
        for name in ready:
            del graph[name]
    assert not graph, f"these import each other: {sorted(graph)}"


def test_planning_and_reporting_never_import_torch():
    """One process imports them all, one after the other, and names the first after which torch is there."""
    code = f"""
import importlib, sys
for name in {TORCH_FREE!r}:
    importlib.import_module(f"lossbench.{{name}}")
    if "torch" in sys.modules: sys.exit(f"{{name}} imports torch")
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr


def test_importing_the_package_imports_nothing_heavy():
    heavy = "torch", "pandas", "numpy", "pydantic", "matplotlib", "scipy"
    code = f"import sys, lossbench; print([name for name in {heavy!r} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_help_and_list_import_nothing_heavy():
    code = """
import sys
from lossbench.cli.commands import cli
for arguments in (["--help"], ["list"], ["run", "--help"]):
    try: cli.main(arguments, standalone_mode=False)
    except SystemExit: pass
print([name for name in ("torch", "pandas", "numpy", "pydantic", "matplotlib", "scipy") if name in sys.modules])
"""
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip().splitlines()[-1] == "[]"


def test_no_import_package_named_losses_or_backbones_is_installed(tmp_path):
    code = "from importlib.util import find_spec; print([n for n in ('losses', 'backbones', 'suites') if find_spec(n)])"
    found = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
