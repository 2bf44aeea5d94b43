"""Which files their publishers would give us now: every address is asked, all at once."""

from __future__ import annotations

import queue
import threading
import time
import urllib.request
from collections.abc import Mapping

from lossbench.data.download.http import AddressError, asking
from lossbench.data.download.sources import File

SECONDS = 4.0  # for all addresses together


def unreachable(files: Mapping[str, File], seconds: float = SECONDS) -> dict[str, str]:
    """Of these files, those that no address answers for, each with a reason.

    A name that does not resolve, or a port where nobody listens, is known at once; silence takes `seconds`. The threads
    are daemons and are not waited for: looking a name up cannot be interrupted.
    """
    answers: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()

    def ask(name: str, address: str) -> None:
        request = urllib.request.Request(address, headers={"User-Agent": "lossbench"})
        try:
            with asking(seconds):
                urllib.request.urlopen(request, timeout=seconds).close()  # the answer is enough
        except AddressError as why:
            answers.put((name, f"{address} {why}"))
        else:
            answers.put((name, ""))

    for name, file in files.items():
        for address in file.addresses:
            threading.Thread(target=ask, args=(name, address), daemon=True).start()
    waiting = {name: len(file.addresses) for name, file in files.items()}
    reasons = {name: f"{file.addresses[0]} sent nothing for {seconds:g} s" for name, file in files.items()}
    end = time.monotonic() + seconds
    while waiting:
        try:
            name, why = answers.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            break
        if name not in waiting:
            continue
        if not why:
            del reasons[name], waiting[name]
            continue
        reasons[name] = why
        waiting[name] -= 1
        if not waiting[name]:
            del waiting[name]
    return reasons
