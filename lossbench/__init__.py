"""lossbench: which loss is really better on my task, and what does it cost?

>>> import lossbench
>>> loss = lossbench.create_loss("w_softmax", 64, 10, alpha=1.5)          # features, classes
>>> backbone = lossbench.create_backbone("cnn", (1, 28, 28), 64)          # (channels, height, width), FC width
>>> digits = lossbench.load_dataset("digits")
>>> lossbench.run("quick", profile="smoke").records                       # doctest: +SKIP

Importing the package imports none of torch, pandas or pydantic; the functions do when they need them.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lossbench.api import Event, RunResult, create_backbone, create_loss, load_dataset, load_records, run

__all__ = ["Event", "RunResult", "create_backbone", "create_loss", "load_dataset", "load_records", "run"]

try:
    __version__ = version("lossbench")
except PackageNotFoundError:  # a checkout that was never installed
    __version__ = "0+unknown"


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("lossbench.api"), name)
    raise AttributeError(f"module 'lossbench' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
