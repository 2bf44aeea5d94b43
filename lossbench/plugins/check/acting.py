"""Does every option have an effect? Each is set to other values until the loss changes.

What counts is a change of the value, the gradients, the scores, or of state that training changes (schedules, running
averages); a parameter or buffer that merely exists does not.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin

import torch
from torch import Tensor, nn

from lossbench.core.labels import label
from lossbench.plugins.check.subject import (
    CLASSES,
    FEATURES,
    TRUE_NORM,
    NotApplicable,
    Remark,
    Subject,
    batch,
    class_vectors,
    evaluate,
    logits,
    near,
    train,
)
from lossbench.plugins.ranges import Range
from lossbench.plugins.registry import Option

BESIDE = 3  # values of an option that are tried with each choice of another option
Look = dict[str, Any]  # what is observed of a loss at one point: tensors, and state of any type


def options_act(subject: Subject) -> str | None:
    """Every option changes the value, the gradient, the scores or the schedule."""
    if subject.options:  # variants are tried below: an option may act only together with another
        return None
    judged = subject.declared("MARGIN_OFF") or {}
    idle, explained = [], []
    for name, option in subject.plugin.options.items():
        if len(judged) == 1 and name in judged:
            continue  # covered by `margin acts`
        fault = _idle(subject, option)
        excuse = (subject.declared("BY_DESIGN") or {}).get(f"option {name}")
        if fault and excuse:
            explained.append(f"{fault}; by design: {excuse}")
        elif fault:
            cure = f'use it, remove it, or say why in BY_DESIGN = {{"option {name}": "…"}}'
            idle.append(f"{fault}; {cure}")
    if idle:
        return " | ".join(idle)
    if explained:
        raise Remark(" | ".join(explained))
    return None


def _idle(subject: Subject, option: Option) -> str | None:
    """A sentence if no value of an option makes a difference; None if one does."""
    tried: dict[str, None] = {}
    for variant in subject.variants():
        if option.name in variant.options:
            continue
        try:
            usual = list(_looks(variant, {}))
        except NotApplicable:
            raise
        except Exception:  # a choice that fails: other properties report it
            continue
        for value in itertools.islice(_others(subject, option), None if variant is subject else BESIDE):
            try:
                acts = any(_differ(mine, its) for mine, its in zip(usual, _looks(variant, {option.name: value})))  # noqa: B905  # it may end early
            except Exception:  # the loss may refuse a value by any error
                continue
            if acts:
                return None
            tried[label("", {option.name: value})[1:-1]] = None
    if not tried:
        return f"no other value of option {option.name} is known: list some in RANGES"
    return f"option {option.name} changes nothing (tried {', '.join(list(tried)[:4])})"


def _others(subject: Subject, option: Option) -> Iterator[Any]:
    """Other values of an option: those in RANGES first, then those that its type suggests."""
    axis = subject.plugin.ranges.get(option.name) if _readable(subject) else None
    listed = () if axis is None else (axis.low, axis.high) if isinstance(axis, Range) else axis.values
    seen = [option.default]
    for value in (*listed, *suggested(option.annotation, option.default)):
        if not any(type(value) is type(other) and value == other for other in seen):
            seen.append(value)
            yield value


def _readable(subject: Subject) -> bool:
    try:
        _ = subject.plugin.ranges
    except Exception:
        return False
    return True


def suggested(annotation: Any, default: Any) -> Iterator[Any]:
    """Values of a type, close to the default and far from it."""
    if get_origin(annotation) in (Union, UnionType):
        for member in get_args(annotation):
            yield from suggested(member, default)
    elif get_origin(annotation) is Literal:
        yield from get_args(annotation)
    elif annotation is NoneType or annotation is None:
        yield None
    elif annotation is bool:
        yield from (True, False)
    elif annotation is int:
        around = (default + 1, default - 1, 2 * default) if type(default) is int else ()
        yield from (*around, 0, 1, 2, 3, 4, 10)
    elif annotation is float:
        near_ = float(default) if type(default) in (int, float) and math.isfinite(default) else 1.0
        yield from (2 * near_, near_ / 2, near_ + 0.1, near_ - 0.1, 10 * near_, near_ / 10)
        yield from (0.0, 0.5, 1.0, 2.0, 10.0, -near_)
    elif (get_origin(annotation) or annotation) in (list, tuple) and isinstance(default, list | tuple):
        for place, item in enumerate(default):
            for other in suggested(type(item), item):
                yield type(default)([*default[:place], other, *default[place + 1 :]])
    elif annotation is Any and default is not None:
        yield from suggested(type(default), default)


def _looks(subject: Subject, options: Mapping[str, Any]) -> Iterator[Look]:
    """The loss when new, after some steps, and at the end of its schedule: each at several points."""
    loss = subject.build(options=options)
    yield from _views(subject, loss)
    before = _state(loss)
    train(loss, 3)
    after = _state(loss)
    yield {name: None if _same(value, before.get(name)) else value for name, value in after.items()}
    yield from _views(subject, loss)
    yield from _views(subject, subject.settled(options=options))


def _views(subject: Subject, loss: nn.Module) -> Iterator[Look]:
    """A generic batch, the same with short features, and features along and opposite to their class weights."""
    points, labels = batch()
    vectors, each = class_vectors(loss, FEATURES, CLASSES, subject.class_weights), torch.arange(CLASSES)
    yield {"logits": logits(loss, points)}
    for at, named in (
        (points, labels),
        (points / 20, labels),
        (TRUE_NORM * vectors, each),
        (-TRUE_NORM * vectors, each),
    ):
        result = evaluate(loss, at, named)
        yield {"value": result.value, **result.gradients}


def _state(loss: nn.Module) -> Look:
    parameters = dict(loss.named_parameters())
    kept = loss.state_dict().items()
    return {
        name: value.clone() if isinstance(value, Tensor) else value for name, value in kept if name not in parameters
    }


def _differ(mine: Look, its: Look) -> bool:
    """Whether two observations differ; a parameter that only one of them has does not count."""
    return any(not _same(mine[name], its[name]) for name in mine.keys() & its.keys())


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        if one.shape != other.shape:  # if it matters, value and scores differ
            return True
        return near(one.nan_to_num(), other.nan_to_num())
    return repr(one) == repr(other)
