"""Compiled training: torch.compile makes machine code of the backbone's forward and backward pass.

Only the backbone is compiled, in training mode and for one shape of batch. All losses of a kind of cell thus run the
same code, and pairs of cells stay exact; losses, which may change from step to step, and evaluation are eager.

The code is kept on disk. The first process of a kind compiles it, which takes a minute, while the others wait; they
then read it in a second. Import this module before a process forks: torch loads much on its first compilation.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
import platform
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch._dynamo.config
import torch._inductor.config
from torch import Tensor, nn
from torch._inductor.runtime.cache_dir_utils import cache_dir

from lossbench.core import compiler, files
from lossbench.core.errors import LossbenchError, PluginError
from lossbench.core.model import COMPILED, Cell
from lossbench.training.measure import cpu_model

ROOT = Path(cache_dir())
os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # otherwise forks of this process could not use a GPU

# Networks are arguments of the code, not constants in it. All work is done in this process: no pool of workers, which
# forks could not share. The code is taken from the disk whenever it is there.
if torch.__version__.startswith("2.4."):  # later versions always do
    torch._dynamo.config.inline_inbuilt_nn_modules = True
torch._inductor.config.compile_threads = 1
torch._inductor.config.fx_graph_cache = True
torch._functorch.config.enable_autograd_cache = True
if hasattr(torch._inductor.config, "deterministic"):  # as torch.use_deterministic_algorithms sets it; see cell.settle
    torch._inductor.config.deterministic = True


def _applied(backbone: nn.Module, images: Tensor) -> Tensor:
    features: Tensor = backbone(images)
    return features


forward: Callable[[nn.Module, Tensor], Tensor] = torch.compile(_applied, fullgraph=True, dynamic=False)


def prepare(cell: Cell, in_shape: tuple[int, ...], first_pass: Callable[[], None]) -> float:
    """Run `first_pass`, which compiles the code of a cell, or reads it; the seconds of a compilation, 0 if none.

    One process at a time compiles a kind of cell. If it is killed, the next one takes over.
    """
    if not compiler.found():
        raise LossbenchError(f"compile = true: {compiler.missing()} on this machine")
    folder = ROOT / _digest(machine())
    if " " in str(folder):  # torch does not quote it
        raise LossbenchError(
            f"compile = true: {ROOT}: its path has a space; set TORCHINDUCTOR_CACHE_DIR to another folder"
        )
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    torch._inductor.config.cpp.threads = cell.threads  # so that it is part of torch's own keys
    if cell.device == "cpu":
        pool_eagerly()
        keep_scales()
    torch._dynamo.reset()  # it gives up on a function that it has compiled for too many kinds, as a probe does
    done = folder / "kinds" / _digest(kind_of(cell, in_shape))
    done.parent.mkdir(parents=True, exist_ok=True)
    if not done.exists():
        with files.locked(done.with_suffix(".lock"), wait=True):
            if not done.exists():
                started = time.perf_counter()
                _run(first_pass)
                done.touch()
                return time.perf_counter() - started
    _run(first_pass)
    return 0.0


def _run(first_pass: Callable[[], None]) -> None:
    try:
        first_pass()
    except Exception as error:
        if not type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            raise
        raise LossbenchError(f"compile = true: torch could not compile the backbone ({_in_a_line(error)})") from error


def kind_of(cell: Cell, in_shape: tuple[int, ...]) -> list[Any]:
    """What decides the code, besides the machine."""
    layout = [cell.device, cell.autocast, cell.channels_last, cell.threads]
    return [cell.backbone.identity(), list(in_shape), cell.width, cell.schedule.batch, *layout]


@functools.cache
def machine() -> tuple[str, ...]:
    """What decides the code, besides the cell: home folders are shared by machines."""
    return (cpu_model(), compiler_version(), torch.__version__, platform.python_version(), str(COMPILED))


@functools.cache
def compiler_version() -> str:
    """The first line that the compiler says about itself."""
    command = [compiler.name(), "--version"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.partition("\n")[0].strip()


def fit_vectors(backbone: nn.Module) -> None:
    """Let generated code use vectors of 8 numbers instead of 16 if a layer has channels that do not fill the latter.

    Loops run along the channels, and what does not fill a vector is done number by number: with 8 channels, a step of a
    small `cnn` took 1.5 times as long. With 16 channels, vectors of 8 would make it 8 % slower.
    """
    unfilled = any(isinstance(layer, nn.Conv2d) and layer.out_channels % 16 for layer in backbone.modules())
    has_16 = torch.backends.cpu.get_cpu_capability() == "AVX512"
    torch._inductor.config.cpp.simdlen = 256 if has_16 and unfilled else None  # bits of a vector; None: the most


@functools.cache
def pool_eagerly() -> None:
    """Leave max pooling to the kernels that torch has for eager networks, in the channels-last layout.

    What torch would generate finds the place of every maximum again, element by element, in the backward pass: a
    quarter of the time of a step of a small `cnn`. The results are the same to the bit.
    """
    from torch._inductor import ir, lowering
    from torch.utils import _pytree

    def channels_last(_: Any, *given: Any, **named: Any) -> Any:
        def placed(node: Any) -> Any:
            return ir.ExternKernel.require_channels_last(node) if len(node.get_size()) == 4 else node

        return _pytree.tree_map_only(ir.IRNode, placed, (given, named))

    if not hasattr(lowering, "should_fallback_max_pool_with_indices"):  # another version of torch: slower, not wrong
        return
    aten = torch.ops.aten
    make_fallback: Any = lowering.make_fallback  # torch gives it no types
    for op in (aten.max_pool2d_with_indices.default, aten.max_pool2d_with_indices_backward.default):
        make_fallback(op, layout_constraint=channels_last, warn=False, override_decomp=True)
    lowering.should_fallback_max_pool_with_indices = lambda *given, **named: True


@functools.cache
def keep_scales() -> None:
    """Compute 1/√(σ² + ε) of batch norm once per channel.

    What torch would generate repeats the root and two divisions for every activation. The results are the same to the
    bit.
    """
    from torch._inductor import lowering

    rsqrt = torch.ops.aten.rsqrt.default
    lowered: Any = lowering.lowerings[rsqrt]

    def kept(values: Any) -> Any:
        scales = lowered(values)
        scales.realize()
        return scales

    lowering.lowerings[rsqrt] = kept


def check(backbone: nn.Module, images: Tensor) -> None:
    """Refuse a backbone that torch cannot compile; only traced here, which takes a second and no compiler."""
    torch._dynamo.reset()
    try:
        traced = torch.compile(_applied, fullgraph=True, dynamic=False, backend="aot_eager")
        traced(backbone, images).sum().backward()  # type: ignore[no-untyped-call]  # torch gives it no types
    except Exception as error:  # torch has many
        why = f"compile = true: torch cannot compile it ({_in_a_line(error)})"
        raise PluginError(f"{why}; set compile = false") from error


def warm_up() -> None:
    """Load what every compilation needs, before a process forks. Nothing of autograd runs here."""
    import torch.utils.cpp_extension
    from torch._inductor import codecache, compile_fx  # noqa: F401  # takes seconds

    codecache.torch_key()  # reads all sources of torch
    with contextlib.suppress(ImportError, AttributeError):
        from torch.utils._triton import has_triton_package

        if has_triton_package():
            codecache.triton_key()
    with torch.no_grad():
        network = nn.Sequential(nn.Conv2d(1, 4, 3), nn.PReLU(4), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(16, 2))
        torch.compile(_applied, fullgraph=True, dynamic=False, backend="aot_eager")(network, torch.zeros(2, 1, 4, 4))
    torch._dynamo.reset()


def _in_a_line(error: Exception) -> str:
    """The first line of an error; torch's have many."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {line}"


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:20]
