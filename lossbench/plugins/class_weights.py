"""The class weights of a loss: one row per class. Angles are measured to them, and a warm start copies them.

A loss file names them by a dotted path in `CLASS_WEIGHTS` (`registry.Plugin.class_weights`): `"weight"` if it says
nothing, `"inner.proxies"` for a parameter further in, `"inner.W.T"` for one that is stored transposed, M×C.
"""

from __future__ import annotations

from torch import Tensor, nn

from lossbench.core.errors import nearest


def found(loss: nn.Module, path: str | None) -> Tensor | None:
    """The tensor at the path, as stored or, after `.T`, transposed; None if the path leads to no tensor."""
    if path is None:
        return None
    place: object = loss
    for part in path.split("."):
        place = getattr(place, part, None)
    return place if isinstance(place, Tensor) else None


def rows(loss: nn.Module, path: str | None, classes: int, width: int) -> Tensor | None:
    """The class weights as C×M, detached; None for a loss that has no single weight per class."""
    tensor = found(loss, path)
    return None if tensor is None or tensor.shape != (classes, width) else tensor.detach()


def stored(loss: nn.Module, path: str | None) -> tuple[str, bool] | None:
    """The parameter or buffer behind the path: its name in the state, and whether the path transposes it."""
    plain = "" if path is None else path.removesuffix(".T")
    tensor = found(loss, plain or None)
    for name, value in (*loss.named_parameters(), *loss.named_buffers()):
        if value is tensor:
            return name, plain != path
    return None


def problem(loss: nn.Module, path: str | None, classes: int, width: int) -> str | None:
    """Why the tensor that CLASS_WEIGHTS names cannot be the class weights, and what to write instead."""
    if path is None:
        return None
    tensor = found(loss, path)
    if tensor is None:
        hint = nearest(path, [name for name, _ in (*loss.named_parameters(), *loss.named_buffers())])
        return f"CLASS_WEIGHTS names '{path}', but this loss has no such tensor; {hint}"
    if tensor.shape == (classes, width):
        return None
    if tensor.shape == (width, classes):
        return f"'{path}' has one column per class, not one row: write {transposed(path)}"
    return (
        f"CLASS_WEIGHTS names '{path}' of shape {_shape(tensor)}, not C×M = {classes}×{width}; a loss without exactly "
        "one weight per class writes CLASS_WEIGHTS = None"
    )


def transposed(path: str) -> str:
    """The declaration that turns this path's rows into columns."""
    turned = path.removesuffix(".T") if path.endswith(".T") else f"{path}.T"
    return f'CLASS_WEIGHTS = "{turned}"'


def missing(loss: nn.Module, path: str | None) -> str:
    """Why a loss has no class weights, as the middle of a sentence."""
    tensor = found(loss, path)
    if path is None:
        return "it declares CLASS_WEIGHTS = None"
    if tensor is None:
        return "it has no parameter 'weight' and declares no CLASS_WEIGHTS"
    return f"its '{path}' has the shape {_shape(tensor)}, which is not one row per class"


def _shape(tensor: Tensor) -> str:
    return "×".join(map(str, tensor.shape)) or "()"
