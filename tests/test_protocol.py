"""A change of lossbench's own training code needs a decision: do results change, and so the protocol number?

Keys hold the protocol number and not our own code, so that a rename does not retrain everything. When the test below
fails, add an entry to tests/protocol.toml. If any result may differ in a bit, raise PROTOCOL of lossbench/core/model.py
by one; otherwise keep the number and give the reason. `python tests/test_protocol.py` prints the digest.
"""

from __future__ import annotations

import ast
import hashlib
import tomllib
from pathlib import Path

from lossbench.core.model import PROTOCOL

PACKAGE = Path(__file__).parent.parent / "lossbench"
DECISIONS = Path(__file__).with_name("protocol.toml")

# Whatever a cell runs between its plugins and its record. Plugins and the arrays of datasets have digests of their own.
TRAINING = (
    *("core/streams", "data/subsets", "data/pairs", "plugins/class_weights"),
    *("engines/eager", "engines/worker"),
    *(f"training/{name}" for name in ("batches", "cell", "checkpoints", "evaluation", "loop", "measure", "recipe")),
    *(f"training/{name}" for name in ("compiled", "prelu", "state", "timing")),
    *("tasks/classification", "tasks/retrieval", "tasks/verification"),
    *sorted(f"metrics/{path.stem}" for path in (PACKAGE / "metrics").glob("*.py")),
)


def code_of(path: Path) -> str:
    """A module's source without comments, docstrings and empty lines."""
    text = path.read_text()
    dropped: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        body = getattr(node, "body", None)
        if (
            isinstance(body, list)
            and body
            and isinstance(body[0], ast.Expr)
            and isinstance(body[0].value, ast.Constant)
        ):
            dropped |= set(range(body[0].lineno, (body[0].end_lineno or body[0].lineno) + 1))
    lines = enumerate(text.splitlines(), start=1)
    return "\n".join(
        line.rstrip() for number, line in lines if number not in dropped and line.strip() and line.strip()[0] != "#"
    )


def digest() -> str:
    joined = "\n".join(f"{name}\n{code_of(PACKAGE / f'{name}.py')}" for name in TRAINING)
    return hashlib.sha256(joined.encode()).hexdigest()[:16]


def test_training_code_does_not_change_without_a_decision_about_the_protocol_number():
    decisions = tomllib.loads(DECISIONS.read_text())["decision"]
    last = decisions[-1]
    assert last["digest"] == digest(), "training code changed: decide about PROTOCOL and say so in tests/protocol.toml"
    assert last["protocol"] == PROTOCOL
    assert all(decision["reason"].strip() for decision in decisions)
    numbers = [decision["protocol"] for decision in decisions]
    assert numbers == sorted(numbers)


def test_a_comment_is_no_change_of_code_and_a_number_is(tmp_path):
    source = '"""Words."""\n\nBATCH = 512  # a number\n\n\ndef f():\n    """More words."""\n    return BATCH\n'
    path = tmp_path / "module.py"
    path.write_text(source)
    before = code_of(path)
    path.write_text(source.replace("More words", "Other words").replace("def f", "# a reason\ndef f"))
    assert code_of(path) == before
    path.write_text(source.replace("512", "128"))
    assert code_of(path) != before


if __name__ == "__main__":
    print(digest())
