"""SGD without torch._dynamo, whose import takes nearly as long as that of torch itself."""

from __future__ import annotations

import contextlib
import sys
from typing import Any


def spare_dynamo() -> None:
    """Let torch's SGD take its steps without importing torch._dynamo.

    Some methods of an optimizer import dynamo only to ask it not to trace them. Where it has not been imported, nothing
    is traced: here they are called as they are, and compute the same. torch.compile, other optimizers and whatever else
    needs dynamo still import it. In a torch that is built differently nothing changes but the time.
    """
    if "torch" not in sys.modules or "torch._dynamo" in sys.modules:
        return
    import torch
    from torch.optim import SGD, Optimizer

    with contextlib.suppress(AttributeError):
        plain: Any
        for method in (Optimizer.add_param_group, Optimizer.zero_grad, Optimizer.state_dict, Optimizer.load_state_dict):
            plain = method.__wrapped__  # type: ignore[union-attr]  # of functools.wraps
            plain.__dict__.setdefault("__dynamo_disable", plain)  # where torch._disable_dynamo keeps its result
        plain = SGD.step.__wrapped__  # type: ignore[attr-defined]  # without torch's own no_grad, which imports dynamo
        SGD.step = torch.no_grad()(plain)  # type: ignore[method-assign]  # as said
