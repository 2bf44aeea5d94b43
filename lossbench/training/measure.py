"""Measurements of a cell's process: memory by cause, peak memory, a digest of the parameters, the environment."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import platform
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lossbench.plugins import class_weights

# Variables that choose other kernels or a lower precision in torch's libraries: as another CPU would, or worse.
KERNELS = (
    *("ATEN_CPU_CAPABILITY", "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS"),
    *(f"{library}_{name}" for library in ("ONEDNN", "DNNL") for name in ("MAX_CPU_ISA", "DEFAULT_FPMATH_MODE")),
    *("NVIDIA_TF32_OVERRIDE", "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"),
)


def size(tensors: Iterable[Tensor | None]) -> int:
    """Bytes that the tensors hold."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor is not None)


def ledger(backbone: nn.Module, loss: nn.Module, optimizer: torch.optim.Optimizer, path: str | None) -> dict[str, int]:
    """Parameter memory by cause, in bytes; `path` names the loss's class weights.

    fc: the backbone's last layer (the one of M units). classifier: the class weights and the `bias` beside them. loss:
    all else that the loss owns (centres, running averages). model: the backbone, fc included. optimizer: its state.
    """
    fc = getattr(backbone, "fc", None)
    everything = [*loss.parameters(), *loss.buffers()]
    plain = None if path is None else path.removesuffix(".T")
    beside = None if plain is None else ".".join([*plain.split(".")[:-1], "bias"])
    named = [class_weights.found(loss, place) for place in (plain, beside)]
    classifier = [tensor for tensor in named if tensor is not None]
    own = [tensor for tensor in everything if all(tensor is not other for other in classifier)]
    state = [value for entry in optimizer.state.values() for value in entry.values() if isinstance(value, Tensor)]
    return {
        "fc": size(fc.parameters()) if isinstance(fc, nn.Module) else 0,
        "classifier": size(classifier),
        "loss": size(own),
        "model": size([*backbone.parameters(), *backbone.buffers()]),
        "optimizer": size(state),
    }


def synchronise(device: str) -> None:
    """Wait until the device has finished; a no-op on the CPU."""
    if device != "cpu":
        torch.cuda.synchronize()


class PeakMemory:
    """The most memory that was added since the meter was made: what the training itself took.

    On the CPU the resident memory of this process; on a GPU what torch's allocator handed out there.
    """

    def __init__(self, device: str = "cpu") -> None:
        self._device = device
        if device != "cpu":
            if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]  # by a cell measured before, in the same process
                torch.cuda.reset_peak_memory_stats()
            self._before = 0
            return
        with contextlib.suppress(OSError):  # Linux only: elsewhere the peak is that of the process's whole life
            Path("/proc/self/clear_refs").write_text("5")
        self._before = self._resident("VmRSS")

    def added(self) -> int:
        if self._device != "cpu":
            return int(torch.cuda.max_memory_allocated()) - self._before
        return max(0, self._resident("VmHWM") - self._before)

    @staticmethod
    def _resident(field: str) -> int:
        with contextlib.suppress(OSError):
            for line in Path("/proc/self/status").read_text().splitlines():
                if line.startswith(f"{field}:"):
                    return int(line.split()[1]) * 1024
        import resource

        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if platform.system() == "Darwin" else most * 1024


def parameter_digest(*modules: nn.Module) -> str:
    """sha256 over all parameters and buffers: equal digests mean bit-identical training."""
    digest = hashlib.sha256()
    for module in modules:
        for name, value in sorted(module.state_dict().items()):
            digest.update(name.encode())
            plain = value.detach().cpu().contiguous() if isinstance(value, Tensor) else None
            digest.update(
                repr(value).encode() if plain is None else plain.flatten().view(torch.uint8).numpy().tobytes()
            )
    return digest.hexdigest()


def environment(threads: int, device: str = "cpu", compiled: str = "") -> dict[str, Any]:
    """Where a cell ran; `compiled` names the compiler of its code, if it was compiled.

    Wall times are compared only between equal fingerprints. `variables` are those of KERNELS that are set, if any.
    """
    variables = " ".join(f"{name}={os.environ[name]}" for name in KERNELS if os.environ.get(name))
    decides = {
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "threads": threads,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "device": device if device == "cpu" else f"{torch.cuda.get_device_name()} (CUDA {torch.version.cuda})",
        **({"compiler": compiled} if compiled else {}),
        **({"variables": variables} if variables else {}),
    }
    fingerprint = hashlib.sha256(repr(sorted(decides.items())).encode()).hexdigest()[:8]
    return {**decides, "fingerprint": fingerprint, "load": round(os.getloadavg()[0], 2)}


@functools.cache
def cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
