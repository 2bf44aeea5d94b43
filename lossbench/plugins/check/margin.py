"""Properties of the margin, for losses that declare one (MARGIN_OFF), and facts about any loss.

A function is a property: its docstring's first line is what holds, its return value what does not (None: it holds).
A function that always returns a sentence is a fact: informational, never a failure.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

from lossbench.core.errors import nearest
from lossbench.core.labels import parse_label
from lossbench.plugins import class_weights
from lossbench.plugins.check.subject import (
    ANGLES,
    NotApplicable,
    Subject,
    batch,
    draws,
    evaluate,
    logits,
    near,
    or_explain,
    same_parameters,
)

EXCUSABLE = ("gradient", "batch order", "class order", "margin off", "continuous", "grows with the angle")
HALVINGS = 24  # of the interval around a suspected jump: 0.013 rad shrink to 8e-10


def declarations(subject: Subject) -> str | None:
    """What it declares about itself (MARGIN_OFF, BY_DESIGN, CLASS_WEIGHTS, …) can be read and makes sense."""
    constants = subject.plugin.constants
    module = sys.modules[subject.plugin.load().__module__]
    for name in ("MARGIN_OFF", "MARGIN_OFF_EQUALS", "BY_DESIGN", "CLASS_WEIGHTS"):
        if hasattr(module, name) and name not in constants:
            return f"{name} must be a literal, so that it can be read without running the file: assign it once, plainly"
    _ = subject.plugin.class_weights  # PluginError says what is wrong with it
    off, equals = constants.get("MARGIN_OFF"), constants.get("MARGIN_OFF_EQUALS")
    if off is not None:
        if not isinstance(off, dict) or not off:
            return 'MARGIN_OFF must be option values, such as {"alpha": 0.0}'
        subject.plugin.parse_options(off)
        if _shapes(subject.build()) != _shapes(subject.build(options=off)):
            return "MARGIN_OFF changes which parameters the loss has: choose options that keep them"
    if equals is not None:
        if off is None:
            return "MARGIN_OFF_EQUALS needs MARGIN_OFF: say at which option values no margin is left"
        name, options = parse_label(str(equals))
        subject.registry.find("loss", name).parse_options(options)
    return _bad_excuse(constants.get("BY_DESIGN", {}), [f"option {name}" for name in subject.plugin.options])


def _bad_excuse(declared: object, options: list[str]) -> str | None:
    if not isinstance(declared, dict) or not all(isinstance(text, str) and text for text in declared.values()):
        return 'BY_DESIGN must map properties to explanations, as in {"gradient": "the weights are constants"}'
    for name in declared:
        if (plain := str(name).partition("[")[0]) not in (*EXCUSABLE, *options):
            return f"BY_DESIGN cannot excuse '{name}'; {nearest(plain, (*EXCUSABLE, *options))}"
    return None


def _shapes(loss: nn.Module) -> dict[str, torch.Size]:
    return {name: parameter.shape for name, parameter in loss.named_parameters()}


def margin_off(subject: Subject) -> str | None:
    """Without its margin it is the loss that it says it is: same value, same gradients."""
    reference = subject.declared("MARGIN_OFF_EQUALS")
    if reference is None:
        raise NotApplicable("declares no MARGIN_OFF_EQUALS, so what it is without its margin is not tested")
    name, options = parse_label(reference)
    other = Subject(subject.registry.find("loss", name), subject.registry, options).build()
    loss = subject.settled(options=subject.margin_off)
    same_parameters(loss, other)
    mine, theirs = evaluate(loss, *batch()), evaluate(other, *batch())
    if not near(mine.value, theirs.value):
        return (
            f"without its margin the loss is {mine.value.item():.6g}, but {reference} gives {theirs.value.item():.6g}: "
            f"correct MARGIN_OFF, MARGIN_OFF_EQUALS or the loss, {or_explain('margin off')}"
        )
    for key in mine.gradients.keys() & theirs.gradients.keys():
        if not near(mine.gradients[key].flatten(), theirs.gradients[key].flatten()):
            return (
                f"with the margin off the gradient of {key} is not that of {reference}: correct MARGIN_OFF, "
                f"MARGIN_OFF_EQUALS or the backward pass, {or_explain('margin off')}"
            )
    return None


def margin_acts(subject: Subject) -> str | None:
    """The margin changes the loss and its gradient."""
    on, off = subject.settled(), subject.settled(options=subject.margin_off)
    same_parameters(on, off)
    with_margin, without = evaluate(on, *batch()), evaluate(off, *batch())
    if near(with_margin.value, without.value, 1e-6):
        return "the loss is the same with and without the margin: use it in forward(), or correct MARGIN_OFF"
    if near(with_margin.gradients["features"], without.gradients["features"], 1e-6):
        return "the gradient is the same with and without the margin: apply it to the scores, without detach()"
    return None


def continuous(subject: Subject) -> str | None:
    """The loss has no jump as a feature turns away from its class weight, from 0 to π."""
    values = subject.by_angle
    rises = [abs(after - before) for before, after in pairwise(values)]
    span = max(values) - min(values)
    for place in sorted(range(len(rises)), key=lambda at: -_surprise(rises, at))[:3]:
        where, jump = _narrow(subject.at_angle, ANGLES[place], ANGLES[place + 1])
        if jump > 1e-5 * span:
            return (
                f"the loss jumps by {jump:.3g} where the angle to the target is {where:.4f} rad: make both branches "
                f"meet there, {or_explain('continuous')}"
            )
    return None


def _surprise(rises: list[float], at: int) -> float:
    """How much one step of the sweep exceeds its neighbours."""
    return rises[at] - max(rises[near_] for near_ in (at - 1, at + 1) if 0 <= near_ < len(rises))


def _narrow(value: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """Halve the interval repeatedly, keeping the half with the larger change: only a jump remains."""
    at_low, at_high = value(low), value(high)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        at_middle = value(middle)
        if abs(at_middle - at_low) > abs(at_high - at_middle):
            high, at_high = middle, at_middle
        else:
            low, at_low = middle, at_middle
    return low, abs(at_high - at_low)


def grows_with_the_angle(subject: Subject) -> str | None:
    """The loss never falls as a feature turns away from its class weight, from 0 to π."""
    values = subject.by_angle
    span = max(values) - min(values)
    for angle, (before, after) in zip(ANGLES, pairwise(values), strict=False):
        if after < before - 1e-9 * span:
            return (
                f"the loss falls when the angle to the target exceeds {angle:.3f} rad: let the target's score "
                f"fall up to π (arc_margin and psi_and_slope in lossbench.margin do), "
                f"{or_explain('grows with the angle')}"
            )
    return None


# --- facts --------------------------------------------------------------------------------------------------------


def shift(subject: Subject) -> str:
    """Does a common shift of all scores leave the loss unchanged, as with softmax?"""
    classes, features = 3, 6
    loss = subject.settled(features, classes)
    points, labels = batch(6, features, classes)
    slope: Tensor = torch.autograd.functional.jacobian(lambda x: loss.logits(x[None])[0], points[0])  # type: ignore[operator, no-untyped-call]  # a plugin's method; torch gives it no types
    moved = points + torch.linalg.pinv(slope).sum(1)
    if not near(logits(loss, moved), logits(loss, points) + 1):
        return "its scores are not linear in the features, so they have no common shift"
    before, after = evaluate(loss, points, labels).value, evaluate(loss, moved, labels).value
    if near(before, after):
        return "a common shift of all scores does not change the loss"
    return f"a common shift of all scores by 1 changes the loss by {float(after - before):+.3g} at a generic point"


def scale(subject: Subject) -> str:
    """Does the loss depend on the length of the features?"""
    loss, (points, labels) = subject.settled(), batch()
    same = near(evaluate(loss, points, labels).value, evaluate(loss, 2 * points, labels).value)
    return f"the length of the features {'does not matter' if same else 'matters'}"


def lower_bound(subject: Subject) -> str:
    """Can the loss be negative?"""
    loss = subject.settled(4, 3)
    points, labels = batch(6, 4, 3)
    vectors = torch.eye(4, dtype=torch.float64)[:3]
    places = [(points * length, labels) for length in (0.0, 0.1, 1.0, 10.0)]
    try:
        subject.place(loss, vectors)
        places += [(vectors[labels] * length, labels) for length in (1.0, 10.0, 100.0, -10.0)]
    except NotApplicable:
        pass
    lowest = min(float(evaluate(loss, *at).value) for at in places)
    return "never below 0 at the points tried" if lowest >= -1e-12 else f"can be negative: {lowest:.4g} at one point"


def own_memory(subject: Subject) -> str:
    """The memory of the loss besides the class weights and their bias."""
    path = subject.class_weights
    sizes = {(c, m): _own_numbers(subject.build(m, c), path) for c, m in ((3, 4), (3, 9), (8, 4), (8, 9), (10, 16))}
    if not any(sizes.values()):
        return "owns nothing besides the class weights"
    both = (sizes[8, 9] - sizes[8, 4] - sizes[3, 9] + sizes[3, 4]) / 25
    by_class = (sizes[8, 4] - sizes[3, 4]) / 5 - 4 * both
    by_feature = (sizes[3, 9] - sizes[3, 4]) / 5 - 3 * both
    constant = sizes[3, 4] - 12 * both - 3 * by_class - 4 * by_feature
    parts = [(both, "C·M"), (by_class, "C"), (by_feature, "M"), (constant, "")]
    said = " + ".join(_term(count, unit) for count, unit in parts if count)
    if 160 * both + 10 * by_class + 16 * by_feature + constant != sizes[10, 16]:
        said = "some"
    return f"owns {said} numbers besides the class weights: {4 * sizes[10, 16]:,} bytes at C=10, M=16 in float32"


def _term(count: float, unit: str) -> str:
    return f"{count:g}" if not unit else unit if count == 1 else f"{count:g}·{unit}"


def _own_numbers(loss: nn.Module, path: str | None) -> int:
    known = class_weights.stored(loss, path)
    beside = () if known is None else (known[0], ".".join([*known[0].split(".")[:-1], "bias"]))
    tensors = {**dict(loss.named_parameters()), **dict(loss.named_buffers())}
    return sum(tensor.numel() for name, tensor in tensors.items() if name not in beside)


def schedule(subject: Subject) -> str:
    """Does the loss change during training by itself?"""
    loss = subject.build()
    hooks = [name for name in ("begin", "advance") if callable(getattr(loss, name, None))]
    return f"changes with the steps of training ({', '.join(hooks)})" if hooks else "has no schedule"


def randomness(subject: Subject) -> str:
    """Does the loss draw random numbers?"""
    return "draws random numbers" if draws(subject) else "draws no random numbers"
