"""Properties of the contract: inputs a loss may depend on, what it must not change, its state, and bad input.

A function is a property: its docstring's first line is what holds, its return value what does not (None: it holds).
"""

from __future__ import annotations

import copy
import io
import itertools
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from lossbench.core.labels import label
from lossbench.plugins import class_weights as weights
from lossbench.plugins.check.subject import (
    CLASSES,
    FEATURES,
    KEEP_FINITE,
    SIZE,
    TRUE_NORM,
    NotApplicable,
    Remark,
    Result,
    Subject,
    advance,
    batch,
    draws,
    evaluate,
    logits,
    near,
    or_explain,
    reseed,
    same_parameters,
    train,
)
from lossbench.plugins.ranges import Range
from lossbench.plugins.registry import REQUIRED

MOST_CORNERS = 256  # of RANGES that are tried
SEEDED = "draw only from the global generators of torch, numpy and random, which are seeded"

# --- the file -----------------------------------------------------------------------------------------------------


def docstring(subject: Subject) -> str | None:
    """The docstring opens with a one-line summary and cites its source with a year."""
    lines = subject.plugin.doc.splitlines()
    if not lines:
        return 'the file has no docstring: begin it with """A summary in one line."""'
    if len(lines) > 1 and lines[1].strip():
        return "the docstring's first line is not a summary by itself: leave an empty line after it"
    if not re.search(r"\b(19|20)\d\d\b", subject.plugin.doc):
        raise Remark("the docstring cites no source with a year: name the paper, if there is one")
    return None


def options(subject: Subject) -> str | None:
    """Every option has a type that a suite can check and a default, and is refused only by ValueError."""
    if fault := option_types(subject):
        return fault
    for name, option in subject.plugin.options.items():
        for nonsense in _nonsense(option.annotation):
            try:
                subject.build(options={name: nonsense})
            except ValueError as error:
                if not str(error).strip():
                    return f"{name} = {nonsense!r} is refused without a message: {_refusal(name)}"
            except Exception as error:
                return f"{name} = {nonsense!r} is refused by {type(error).__name__}: {_refusal(name)}"
    return None


def option_types(subject: Subject) -> str | None:
    """Every option has a type that a suite can check, and a default."""
    for name, option in subject.plugin.options.items():
        if option.default is REQUIRED:
            return f"option {name} has no default: give it one, as in `{name}: float = 1.0`"
        if option.annotation is Any and option.annotation_text != "Any":
            given = "no type" if option.annotation_text == "anything" else f"the type {option.annotation_text}"
            return (
                f"option {name} has {given}; use bool, int, float, str, list, tuple, dict, Literal or a union of them"
            )
    return None


def ranges(subject: Subject) -> str | None:
    """RANGES is valid, and the loss accepts every corner of it."""
    declared = subject.plugin.ranges  # PluginError says what is wrong with them
    if not declared:
        raise NotApplicable("declares no RANGES, so nothing is tuned unless a suite gives ranges")
    ends = {name: (axis.low, axis.high) if isinstance(axis, Range) else axis.values for name, axis in declared.items()}
    alone = ({name: end} for name, mine in ends.items() for end in mine)
    corners = (dict(zip(ends, corner, strict=True)) for corner in itertools.product(*ends.values()))
    for chosen in (*alone, *itertools.islice(corners, MOST_CORNERS)):
        try:
            subject.build(options=chosen)
        except ValueError as error:
            return f"{label('', chosen)[1:-1]}, within RANGES, is refused ({error}): narrow RANGES, or accept it"
    return None


def _refusal(name: str) -> str:
    return f'in __init__, raise ValueError(f"{name} must be …, got {{{name}}}")'


def _nonsense(annotation: Any) -> tuple[Any, ...]:
    if annotation is float:
        return (float("nan"), float("inf"), -1e9)
    return {int: (0, -1), str: ("", "no such thing")}.get(annotation, ())


# --- what a value depends on --------------------------------------------------------------------------------------


def runs(subject: Subject) -> str | None:
    """It can be built, and gives a finite scalar with a gradient, and scores for prediction."""
    loss = subject.build()
    points, labels = batch()
    if problem := evaluate(loss, points, labels).problem():
        return f"{problem} at a generic point: {KEEP_FINITE}"
    scores = logits(loss, points)
    if not isinstance(scores, Tensor) or scores.shape != (SIZE, CLASSES):
        given = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        return f"logits() gives {given} instead of B×C = {(SIZE, CLASSES)}: return one score per class and example"
    return None


def deterministic(subject: Subject) -> str | None:
    """The same seed gives the same value and gradient, to the bit."""
    first, second = (evaluate(subject.build(), *batch()) for _ in range(2))
    if not torch.equal(first.value, second.value):
        return f"the same seed gives {first.value.item():.10g} and then {second.value.item():.10g}: {SEEDED}"
    for name, gradient in first.gradients.items():
        if not torch.equal(gradient, second.gradients[name]):
            return f"the same seed gives two different gradients of {name}: {SEEDED}"
    return None


def batch_order(subject: Subject) -> str | None:
    """The order of the examples in a batch does not matter."""
    loss, (points, labels) = subject.build(), batch()
    order = torch.randperm(SIZE, generator=torch.Generator().manual_seed(4))
    straight, shuffled = evaluate(loss, points, labels), evaluate(loss, points[order], labels[order])
    if _agree(straight, shuffled) and near(shuffled.gradients["features"], straight.gradients["features"][order]):
        return None
    if draws(subject):
        raise NotApplicable("draws random numbers, so the order decides which example gets which")
    return (
        f"shuffling the batch changes the loss from {straight.value.item():.6g} to {shuffled.value.item():.6g}: treat "
        f"all examples alike, regardless of their position, {or_explain('batch order')}"
    )


def class_order(subject: Subject) -> str | None:
    """Numbering the classes in another order does not matter."""
    loss, (points, labels) = subject.build(), batch()
    order = torch.randperm(CLASSES, generator=torch.Generator().manual_seed(5))
    straight = evaluate(loss, points, labels)
    for blocks in (False, True):  # C·K rows may be ordered by class or by K: both are fine
        renamed = copy.deepcopy(loss)
        with torch.no_grad():
            for tensor in (*renamed.parameters(), *renamed.buffers()):
                _reorder(tensor, order, blocks)
        result = evaluate(renamed, points, order.argsort()[labels])
        if _agree(straight, result) and near(result.gradients["features"], straight.gradients["features"]):
            return None
    if draws(subject):
        raise NotApplicable("draws random numbers, so the order decides which class gets which")
    return (
        f"renumbering the classes changes the loss from {straight.value.item():.6g} to {result.value.item():.6g}: "
        f"treat all classes alike, regardless of their number, {or_explain('class order')}"
    )


def _reorder(tensor: Tensor, order: Tensor, blocks: bool) -> None:
    for dim, length in enumerate(tensor.shape):
        if length == len(order):
            tensor.copy_(tensor.index_select(dim, order))
        elif length % len(order) == 0 and length:
            times = length // len(order)
            places = torch.arange(length).view((times, -1) if blocks else (-1, times))
            tensor.copy_(tensor.index_select(dim, (places[:, order] if blocks else places[order]).flatten()))


def _agree(one: Result, other: Result) -> bool:
    return near(one.value, other.value)


def prediction(subject: Subject) -> str | None:
    """Prediction uses neither labels nor margin, and treats each example separately."""
    loss, (points, labels) = subject.build(), batch()
    before = logits(loss, points)
    if not torch.isfinite(before).all():
        return f"logits are not finite: {KEEP_FINITE}"
    if not near(torch.cat([logits(loss, point[None]) for point in points]), before):
        return "logits of one example depend on the others: use no statistics of the batch in logits()"
    evaluate(loss, points, labels, on_a_copy=False)
    if not torch.equal(logits(loss, points), before):
        return "logits change after a forward pass: use nothing in logits() that forward() has stored, such as labels"
    if off := subject.declared("MARGIN_OFF"):
        plain = subject.build(options=off)
        same_parameters(loss, plain)
        scores = logits(plain, points)
        if not near(scores / scores.norm(), before / before.norm()):
            return "logits change with the margin: leave it out of logits() and apply it in forward()"
    return None


def aligned_prediction(subject: Subject) -> str | None:
    """A feature along a class weight is predicted as that class."""
    axes = torch.eye(CLASSES, CLASSES + 1, dtype=torch.float64)
    loss = subject.build(CLASSES + 1, CLASSES)
    subject.place(loss, axes)
    right = torch.equal(logits(loss, TRUE_NORM * axes).argmax(1), torch.arange(CLASSES))
    if right:
        return None
    return (
        "a feature along a class weight is not predicted as that class: logits() must be largest for the nearest class "
        "weight; if another tensor holds the class weights, name it in CLASS_WEIGHTS"
    )


# --- what it leaves alone and what it owns ------------------------------------------------------------------------


def inputs_untouched(subject: Subject) -> str | None:
    """A forward pass changes neither features, labels nor parameters."""
    loss, (points, labels) = subject.build(), batch()
    parameters = {name: value.detach().clone() for name, value in loss.named_parameters()}
    given = points.clone().requires_grad_()
    passed, named = given.clone(), labels.clone()
    reseed(0)
    loss(passed, named)
    if not torch.equal(passed, points):
        return "forward changes the features in place: compute a new tensor (x = x * 2, not x *= 2)"
    if not torch.equal(named, labels):
        return "forward changes the labels in place: change a copy, labels.clone()"
    for name, value in loss.named_parameters():
        if not torch.equal(value, parameters[name]):
            return f"forward changes the parameter {name}: leave that to the optimizer, or do it in advance()"
    return None


def forward_keeps_state(subject: Subject) -> str | None:
    """A forward pass changes no schedule and no state: only advance() does, once per step."""
    loss, (points, labels) = subject.build(), batch()
    train(loss, 1)
    parameters = dict(loss.named_parameters())
    before = copy.deepcopy({name: value for name, value in loss.state_dict().items() if name not in parameters})
    values = [evaluate(loss, points, labels, on_a_copy=False).value for _ in range(3)]
    for name, value in before.items():
        if not _same(value, loss.state_dict()[name]):
            return f"forward changes the state '{name}': change it in advance(), which is called once per step"
    if not near(values[0], values[2]):
        return "forward returns a different value each time: change state in advance(), which is called once per step"
    return None


def _same(one: Any, other: Any) -> bool:
    return torch.equal(one, other) if isinstance(one, Tensor) else bool(one == other)


def state_round_trip(subject: Subject) -> str | None:
    """Saved and loaded during training, it continues unchanged, including its schedule."""
    first, second = subject.build(), subject.build(seed=1)
    train(first, 3)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second.load_state_dict(torch.load(file, weights_only=True))
    points, labels = batch()
    for moment in ("after loading its state", "one step after loading its state"):
        value, loaded = (evaluate(loss, points, labels, on_a_copy=False).value for loss in (first, second))
        if not near(value, loaded):
            return (
                f"{moment} the loss is {loaded.item():.6g} instead of {value.item():.6g}: keep counters and averages "
                "in buffers (register_buffer) or in get_extra_state and set_extra_state"
            )
        advance(first)
        advance(second)
    return None


def owned_memory(subject: Subject) -> str | None:
    """Every tensor it keeps is a parameter or a registered buffer, and they do not grow."""
    loss = subject.build()
    train(loss, 1)
    size = _bytes(loss)
    train(loss, 3)
    if _bytes(loss) != size:
        grown = f"its parameters and buffers grow from {size:,} to {_bytes(loss):,} bytes over three steps"
        return f"{grown}: give them their full size in __init__ and overwrite them"
    registered = {id(tensor) for tensor in (*loss.parameters(), *loss.buffers())}
    for module in loss.modules():
        own = {name: value for name, value in vars(module).items() if name not in _REGISTERED}
        for path in _strays(own, registered, set()):
            return (
                f"it keeps a tensor that is neither a parameter nor a buffer after a step, {path}: register it "
                "(register_buffer), or release it in advance()"
            )
    return None


_REGISTERED = ("_parameters", "_buffers", "_modules")


def _bytes(loss: nn.Module) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in (*loss.parameters(), *loss.buffers()))


def _strays(found: Any, known: set[int], seen: set[int], path: str = "self") -> Iterator[str]:
    """The paths of unregistered tensors and arrays inside an object."""
    if id(found) in seen:
        return
    seen.add(id(found))
    if isinstance(found, Tensor | np.ndarray):
        if id(found) not in known:
            yield path
    elif isinstance(found, dict):
        for key, value in found.items():
            yield from _strays(value, known, seen, f"{path}.{key}" if isinstance(key, str) else f"{path}[{key!r}]")
    elif isinstance(found, list | tuple | set | frozenset):
        for place_, value in enumerate(found):
            yield from _strays(value, known, seen, f"{path}[{place_}]")
    elif isinstance(found, nn.Module) or (hasattr(found, "__dict__") and not callable(found)):
        yield from _strays(vars(found), known, seen, path)  # a module in a plain list is not registered either


# --- what it refuses ----------------------------------------------------------------------------------------------


def bad_labels(subject: Subject) -> str | None:
    """Labels that are too large, negative (−100 too) or not integers are refused with a ValueError that says so."""
    points, labels = batch()
    spoilt = {f"labels of {wrong}": labels.clone() for wrong in (CLASSES, -1, -100)}
    for wrong, given in zip((CLASSES, -1, -100), spoilt.values(), strict=True):
        given[0] = wrong
    cure = "call lossbench.margin.check_labels(labels, classes) first in forward"
    for said, given in {**spoilt, "labels of float dtype": labels.float()}.items():
        try:
            subject.build()(points.clone(), given)
        except ValueError as error:
            if not str(error).strip():
                return f"{said} are refused without a message: {cure}"
        except Exception as error:
            return f"{said} are refused by {type(error).__name__} instead of ValueError: {cure}"
        else:
            return f"{said} are accepted, with {CLASSES} classes: {cure}"
    return None


# --- what others read of it -----------------------------------------------------------------------------------------


def class_weights(subject: Subject) -> str | None:
    """It has class weights, one row per class: angles can be measured, and a warm start passes them on."""
    loss, path = subject.build(), subject.class_weights
    named = subject.believed and subject.plugin.names_class_weights
    if named and (fault := weights.problem(loss, path, CLASSES, FEATURES)):
        return fault
    if weights.rows(loss, path, CLASSES, FEATURES) is not None:
        return None
    tensor = weights.found(loss, path)
    if path is not None and tensor is not None and tensor.shape == (FEATURES, CLASSES):
        return f"its '{path}' has one column per class, not one row: write {weights.transposed(path)}"
    told = (
        f"has no class weights ({weights.missing(loss, path)}): angles are not measured, claims about them are refused "
        "and a warm start passes on the backbone only"
    )
    shaped = [name for name, value in loss.named_parameters() if value.shape == (CLASSES, FEATURES)]
    if shaped and not named:
        told += f"; if they are '{shaped[0]}', write CLASS_WEIGHTS = \"{shaped[0]}\""
    raise Remark(told)
