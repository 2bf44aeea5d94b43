"""What a finished cell may keep, so that metrics can be measured later without training: as bytes of files.

predictions.npz    the arrays of its evaluation: labels, predictions, logits, scores
features.npz       these, the features and class weights, and the same of training images
model.pt           the state of backbone and loss, from which everything can be evaluated again
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lossbench.metrics import Evaluation
from lossbench.metrics._outputs import Outputs
from lossbench.metrics._search import Identified, Retrieved
from lossbench.training.checkpoints import as_bytes
from lossbench.training.state import TrainState

FILES = {"predictions": "predictions.npz", "features": "features.npz", "model": "model.pt"}
FEATURES = ("features", "weights", "train")  # the fields that only the level `features` has
MODEL = ("network", "images")  # and those that only the level `model` has
TENSORS = ("features", "weights")
LOGITS = "logits"
# Fields with fields of their own, and how they are made again.
PARTS: dict[str, Any] = {"retrieved": Retrieved, "identified": Identified, "counts": dict}


def kept(levels: tuple[str, ...], test: Evaluation, state: TrainState) -> dict[str, bytes]:
    """The files to keep by name."""
    made = {
        "predictions": lambda: _packed(restricted(test, "predictions")),
        "features": lambda: _packed(restricted(test, "features")),
        "model": lambda: as_bytes({"backbone": state.backbone.state_dict(), "loss": state.loss.state_dict()}),
    }
    return {FILES[level]: made[level]() for level in levels}


def restricted(test: Evaluation, level: str) -> Evaluation:
    """Only what a metric of this level may use: it must be able to do without the rest later."""
    hidden = {"predictions": (*FEATURES, *MODEL), "features": MODEL, "model": ()}[level]
    changed: dict[str, Any] = dict.fromkeys(hidden)
    if test.held_out:
        changed["held_out"] = restricted(test.held_out, level)
    return replace(test, **changed)


def unpacked(content: bytes) -> Evaluation:
    """The evaluation that `kept` has written, on the CPU."""
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        return _evaluation({name: arrays[name] for name in arrays.files})


def _packed(test: Evaluation) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **_arrays(test))
    return buffer.getvalue()


def _arrays(test: Evaluation) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in ((field.name, getattr(test, field.name)) for field in fields(Evaluation)):
        if value is None:
            continue
        if isinstance(value, Evaluation):
            found |= {f"{name}.{inner}": part for inner, part in _arrays(value).items()}
        elif name in PARTS:
            parts = value if isinstance(value, Mapping) else vars(value)
            found |= {f"{name}.{inner}": np.asarray(part) for inner, part in parts.items()}
        elif isinstance(value, Outputs):
            found[LOGITS] = value.logits(slice(None)).detach().float().cpu().numpy()
        elif isinstance(value, Tensor):
            found[name] = value.detach().float().cpu().numpy()
        else:
            found[name] = np.asarray(value)
    return found


def _evaluation(arrays: dict[str, Any]) -> Evaluation:
    inner: dict[str, dict[str, Any]] = {}
    given: dict[str, Any] = dict.fromkeys(TENSORS)
    for name, value in arrays.items():
        outer, dot, rest = name.partition(".")
        if dot:
            inner.setdefault(outer, {})[rest] = value
        else:
            given[name] = torch.from_numpy(value) if name in TENSORS else _plain(value)
    if LOGITS in given:
        given["outputs"] = Outputs(torch.from_numpy(given.pop(LOGITS)).__getitem__, given["labels"])
    for name, parts in inner.items():
        plain = {key: _plain(part) for key, part in parts.items()}
        given[name] = PARTS[name](**plain) if name in PARTS else _evaluation(parts)
    return Evaluation(**given)


def _plain(value: Any) -> Any:
    return value if value.ndim else value.item()
