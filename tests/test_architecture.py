"""The table of the README's architecture section: who may import whom, and what stays instant."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "lossbench"

TRAINING = ["batches", "data", "measure", "score", "timing", "trainee"]

# Modules that must not pull in torch, not even through what they import.
TORCH_FREE = [
    "suite",
    "plan",
    "tune",
    "schema",
    "registry",
    "stats",
    "store",
    "report.sections",
    "report.render",
    "cli",
    "job",
    "api",
]


def imports_of(path: Path) -> set[str]:
    """What a module imports from this package, at any depth of nesting."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.startswith("lossbench")}


@pytest.mark.parametrize(
    ("module", "may_import"),
    [
        ("errors", []),
        ("files", []),
        ("plain", []),
        ("labels", []),
        ("streams", []),
        ("theory", []),
        ("stats/__init__", ["stats"]),
        ("stats/pairs", []),
        ("forecast", ["schema"]),
        ("text", []),
        ("values", []),
        ("schema", ["errors", "plain", "text", "values"]),
        ("ranges", ["errors"]),
        ("trials", ["values", "ranges", "schema", "streams"]),
        ("tune", ["schema"]),
        ("registry", ["errors", "files", "footprint", "ranges", "values"]),
        ("footprint", []),
        ("guard", []),
        ("explain", ["errors", "values"]),
        ("suite_files", ["errors", "files"]),
        ("plan", ["schema", "theory"]),
        ("metrics", ["text"]),
        ("claims", ["errors", "labels", "metrics", "schema", "text", "theory"]),
        ("suite_tune", ["errors", "labels", "ranges", "registry", "schema", "text", "trials", "tune"]),
        (
            "suite",
            [
                "claims",
                "errors",
                "explain",
                "files",
                "labels",
                "values",
                "registry",
                "schema",
                "suite_tune",
                "text",
                "tune",
            ],
        ),
        ("record_text", ["schema", "text"]),
        ("store", ["errors", "files", "record_text", "schema", "text"]),
        ("class_weights", ["errors"]),
        ("measure", ["class_weights", "schema"]),
        ("margin", []),
        ("verification", []),
        ("data/dataset", []),
        ("data/view", ["data", "errors", "streams"]),
        ("data/cache", ["data", "errors", "files", "registry"]),
        ("data/contract", ["data", "errors"]),
        ("batches", ["data", "streams"]),
        ("trainee", ["class_weights", "errors", "registry", "schema", "streams"]),
        (
            "score",
            [
                *("batches", "class_weights", "data", "errors", "measure", "schema", "streams", "text", "trainee"),
                "verification",
            ],
        ),
        ("timing", ["batches", "data", "measure", "registry", "schema", "streams", "trainee"]),
        (
            "train",
            [
                "batches",
                "data",
                "errors",
                "files",
                "measure",
                "registry",
                "schema",
                "score",
                "streams",
                "text",
                "timing",
                "trainee",
            ],
        ),
        (
            "job",
            [
                *("choose", "data", "engines", "errors", "labels", "plan", "registry", "schema", "suite"),
                *("suite_files", "tune"),
            ],
        ),
        ("choose", []),
        ("data/reach", ["data"]),
        ("data/supply", ["data", "errors", "registry"]),
        ("report/blocks", []),
        ("report/words", []),
        ("report/points", ["metrics", "stats"]),
        ("report/analysis", ["errors", "metrics", "report", "schema", "stats", "store", "text", "theory"]),
        *((f"report/{name}", ["claims", "metrics", "report", "stats", "text"]) for name in ("claims", "claims_pair")),
        ("report/claims_along", ["claims", "metrics", "report", "stats", "text"]),
        ("report/data_schema", ["report", "schema"]),
        ("report/published", ["labels", "report", "schema", "stats", "text"]),
        ("report/tuning", ["report", "schema", "stats", "tune"]),
        ("report/ranks", ["labels", "report", "stats"]),
        ("report/cost", ["report", "stats"]),
        ("report/data", ["report", "stats"]),
        ("report/tex", ["report"]),
        ("report/compare", ["errors", "metrics", "report"]),
        ("cli_report", ["errors", "report", "screen", "store"]),
        ("report/guards", ["report", "stats"]),
        ("report/sections", ["report", "stats"]),
        ("report/sections_grid", ["report", "stats"]),
        ("report/sections_end", ["report"]),
        ("report/series", ["report", "stats"]),
        ("report/figures/curves", ["report", "theory"]),
        *(
            (f"report/figures/{name}", ["report"])
            for name in ("__init__", "style", "forest", "dots", "ranking", "cost", "plane")
        ),
        ("report/render", ["report"]),
        ("report/page", ["report"]),
        ("report/drill", ["files", "report", "schema", "store"]),
    ],
)
def test_modules_import_only_what_the_architecture_allows(module, may_import):
    used = {name.removeprefix("lossbench.").partition(".")[0] for name in imports_of(PACKAGE / f"{module}.py")}
    assert used - {"lossbench", "plain"} <= set(may_import)  # any edge makes its text plain


@pytest.mark.parametrize("module", TORCH_FREE)
def test_planning_and_reporting_never_import_torch(module):
    code = f"import sys, lossbench.{module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_importing_the_package_imports_nothing_heavy():
    heavy = "torch", "pandas", "numpy", "pydantic", "matplotlib", "scipy"
    code = f"import sys, lossbench; print([name for name in {heavy!r} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_help_and_list_import_nothing_heavy():
    code = """
import sys
from lossbench.cli import cli
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
