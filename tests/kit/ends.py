"""What a loss can do to its process, and what becomes of its cell, on every engine."""

from __future__ import annotations

CALM = "if len(labels) > 2:\n            "  # the preflight calls the loss once on two examples
PLUGIN, ENVIRONMENT = "plugin", "environment"

# By the name of a loss: what it does, and the status, the cause and a part of the error of its record.
ENDS = {
    "raises": ("raise RuntimeError('no way')", "failed", PLUGIN, "no way"),
    "exits": ("os._exit(0)", "failed", PLUGIN, "exit code 0"),
    "is_killed": ("os.kill(os.getpid(), signal.SIGKILL)", "failed", ENVIRONMENT, "SIGKILL"),
    "crashes": ("import ctypes; ctypes.string_at(0)", "failed", PLUGIN, "SIGSEGV"),
    "turns_nan": ("value = value * float('nan')", "diverged", None, "step 0"),
    "lacks_memory": ("raise MemoryError('too big')", "oom", ENVIRONMENT, "too big"),
    "finds_disk_full": ("raise OSError(28, 'No space left on device')", "failed", ENVIRONMENT, "No space left"),
}
