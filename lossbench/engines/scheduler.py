"""Which cell runs when: the same rules for every engine.

A cell runs after its warm start, and warm starts begin early enough to keep all cores busy; timing cells run alone; a
cell that another run on the same folder holds is left to that run; a cell that fails because of its environment is
tried again if the engine allows it. Every cell ends with a record.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any, Literal

from lossbench.core.errors import RunError, StoreError, last_line
from lossbench.core.model import Cause, Cell, Record
from lossbench.engines.protocol import Ended, Engine, Started
from lossbench.store.records import Store


@dataclass(frozen=True)
class Event:
    """Progress of a run: a cell started or ended (then it has a record), or another run holds all that is left."""

    kind: Literal["started", "ended", "held"]
    cell: Cell
    record: dict[str, Any] | None = None


@dataclass(frozen=True)
class Rules:
    """The user's settings for the cells of a run."""

    timeout: float | None = None  # seconds per cell
    fail_fast: bool = False  # start nothing more after a failure
    redo: frozenset[str] = frozenset()  # keys of cells whose present record is replaced


def execute(
    cells: Sequence[Cell],
    engine: Engine,
    store: Store,
    rules: Rules,
    on_event: Callable[[Event], None] = lambda event: None,
    notify: Callable[[str], None] = lambda text: None,
) -> None:
    """Run `cells` (unique keys) on an open engine until each has a record."""
    try:
        _Scheduler(list(cells), engine, store, rules, on_event, notify).run()
    except StoreError as error:
        raise RunError(str(error)) from error


@dataclass
class _Running:
    """A cell at work, and our claim on it."""

    cell: Cell
    claim: ExitStack
    attempt: int = 1
    since: float | None = None  # None: its process has not started
    late: bool = False  # cancelled because of the time limit


@dataclass
class _Scheduler:
    waiting: list[Cell]
    engine: Engine
    store: Store
    rules: Rules
    on_event: Callable[[Event], None]
    notify: Callable[[str], None]

    def run(self) -> None:
        self.running: dict[str, _Running] = {}
        held = False
        try:
            while True:
                self.fill()
                if not self.running and not self.waiting:
                    return
                if not self.running and not held:
                    held = True
                    self.on_event(Event("held", self.waiting[0]))
                self.cancel_late()
                for event in self.engine.events():
                    if isinstance(event, Started):
                        self.running[event.key].since = time.monotonic()
                    else:
                        self.account(event)
        finally:
            for running in self.running.values():
                running.claim.close()

    def fill(self) -> None:
        """Start what can start."""
        for cell in self.ordered():
            busy = [other.cell for other in self.running.values()]
            alone = "timing" in (cell.kind, *(other.kind for other in busy))
            if len(busy) >= self.engine.size() or (alone and busy):
                return
            on_gpu = [other for other in busy if other.device != "cpu"]
            if cell.device != "cpu" and len(on_gpu) >= self.engine.size(cell.device):
                continue
            if cell.warm and self.is_pending(cell.warm_cell().key):
                continue
            claim = ExitStack()
            if claim.enter_context(self.store.claim(cell.key, alone=cell.kind == "timing")):
                self.waiting.remove(cell)
                self.start(cell, claim)
            else:
                claim.close()

    def ordered(self) -> list[Cell]:
        """The waiting cells as planned, but the next warm start first once the others would end before it does.

        Otherwise a late warm start would leave all cores but one without work.
        """
        warm = next((cell for cell in self.waiting if cell.kind == "warm"), None)
        if warm is None:
            return list(self.waiting)
        pending = {
            cell.key
            for cell in (*self.waiting, *(other.cell for other in self.running.values()))
            if cell.kind == "warm"
        }
        steps, enough = 0, warm.schedule.steps * self.engine.size()
        for cell in self.waiting:
            if cell.kind != "warm" and not (cell.warm and cell.warm_cell().key in pending):
                steps += cell.schedule.steps
                if steps > enough:
                    return list(self.waiting)
        return [warm, *(cell for cell in self.waiting if cell is not warm)]

    def start(self, cell: Cell, claim: ExitStack) -> None:
        known = self.store.read(cell.key)
        if known is not None and cell.key not in self.rules.redo:  # another run finished it meanwhile
            claim.close()
            self.on_event(Event("ended", cell, known))
            return
        if known is not None:
            self.store.set_aside(cell.key)
        self.running[cell.key] = _Running(cell, claim)
        if failure := self.warm_start_failure(cell):
            self.finish(cell.key, failure)
            return
        self.engine.submit(cell)
        self.on_event(Event("started", cell))

    def warm_start_failure(self, cell: Cell) -> Record | None:
        """Why a cell cannot run: its warm start has no usable record."""
        if not cell.warm:
            return None
        warm = cell.warm_cell().key
        found = self.store.read(warm) or {"status": "missing", "cause": "environment"}
        if found["status"] == "done":
            return None
        cause: Cause = found.get("cause") or "plugin"
        return Record(cell, "failed", f"its warm start ({warm}) did not finish", cause)

    def is_pending(self, key: str) -> bool:
        """Whether that cell will still get a record: from us, or from another run that holds it."""
        if key in self.running or any(cell.key == key for cell in self.waiting):
            return True
        if self.store.read(key) is not None:
            return False
        with self.store.claim(key) as free:
            return not free

    def cancel_late(self) -> None:
        """Enforce the time limit."""
        if self.rules.timeout is None:
            return
        latest = time.monotonic() - self.rules.timeout - self.engine.patience
        for key, running in self.running.items():
            if running.since is not None and running.since < latest and not running.late:
                running.late = True
                self.engine.cancel(key)

    def account(self, ended: Ended) -> None:
        """Finish a cell whose process is gone, or try it again."""
        running, failure = self.running[ended.key], ended.failure
        if running.late:
            failure = Record(running.cell, "timeout", f"killed after {self.rules.timeout:g} seconds", "environment")
        elif failure and failure.cause == "environment" and self.engine.attempts > 1:
            if running.attempt < self.engine.attempts:
                self.notify(f"{running.cell.title}: {last_line(failure.error)}; trying again")
                running.attempt, running.since = running.attempt + 1, None
                self.engine.submit(running.cell)
                return
            failure = replace(failure, error=f"{failure.error} (tried {running.attempt} times)")
        self.finish(ended.key, failure)

    def finish(self, key: str, failure: Record | None) -> None:
        """A dead process cannot write: unless it has left a record, its failure becomes one here."""
        record = self.store.read(key)
        if record is None and failure is not None:
            self.store.write(failure)
            record = self.store.read(key)
        running = self.running.pop(key)
        running.claim.close()
        if self.rules.fail_fast and record is not None and record["status"] != "done":
            self.waiting.clear()
        self.on_event(Event("ended", running.cell, record))
