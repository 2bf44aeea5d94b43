"""Which GPUs this machine offers, found without importing torch: the scheduler gives each cell one of them."""

from __future__ import annotations

import os
import shutil
import subprocess


def visible() -> list[str]:
    """The identifiers that CUDA_VISIBLE_DEVICES would take: those it names already, else all that the driver lists."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    if named is not None:
        return [name.strip() for name in named.split(",") if name.strip() and name.strip() != "-1"]
    if not shutil.which("nvidia-smi"):
        return []
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, check=False, timeout=30)
    except (OSError, subprocess.TimeoutExpired):  # a driver that hangs offers no GPU
        return []
    return [str(number) for number, line in enumerate(listed.stdout.splitlines()) if line.startswith("GPU ")]
