"""The exceptions a user can act on. The command line prints them, one sentence per mistake, and exits with 2.

LossbenchError
├── SuiteError          the suite file is invalid; `mistakes` has one sentence for each mistake
├── PluginError         a plugin is missing, ambiguous or invalid
├── DataError           a dataset is unknown, damaged or cannot be used as requested
│   └── MissingDataError    its files are missing: experiments that do not need them can still run
├── StoreError          a run folder cannot be read or written
└── RunError            a run had to stop; finished cells are kept; exit code 1
    └── ClusterLostError    the Ray cluster is gone
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class LossbenchError(Exception):
    """An invalid request; the text says what is wrong, where, and the nearest valid choice."""


class SuiteError(LossbenchError):
    """The suite file is invalid: one sentence per mistake, each on its own line."""

    def __init__(self, *mistakes: str) -> None:
        super().__init__(*mistakes)
        self.mistakes = mistakes

    def __str__(self) -> str:
        more = len(self.mistakes) - MOST_MISTAKES
        return "\n".join([*self.mistakes[:MOST_MISTAKES], *([f"and {more} more"] if more > 0 else [])])


class PluginError(LossbenchError):
    """A plugin is missing, ambiguous or invalid."""


class DataError(LossbenchError):
    """A dataset is unknown, damaged or cannot be used as requested."""


class MissingDataError(DataError):
    """The files of a dataset are missing: experiments that do not need them can still run."""


class StoreError(LossbenchError):
    """A run folder cannot be read or written."""


class RunError(LossbenchError):
    """A run had to stop; finished cells are kept."""


class ClusterLostError(RunError):
    """Ray's head, or its daemon on this machine, is gone; Ray will end every process that was connected."""


# What other libraries call a loss or a key.
ELSEWHERE = {"cross_entropy": "softmax", "crossentropy": "softmax", "ce": "softmax", "learning_rate": "lr"}
ELSEWHERE |= {"model": "backbone", "network": "backbone", "wd": "weight_decay", "optim": "optimizer"}
ELSEWHERE |= {"scheduler": "decay", "lr_scheduler": "decay", "grad_clip": "clip", "max_grad_norm": "clip"}
MOST_MISTAKES = 20  # of a suite that are shown
MOST_ERROR, MOST_LINE, MOST_SHOWN = 20_000, 2_000, 300  # characters: in a record, in one of its lines, in a terminal


def bounded(text: str) -> str:
    """An error text for a record: valid Unicode; long text is cut in the middle."""
    lines = text.encode(errors="backslashreplace").decode().split("\n")
    return shortened("\n".join(shortened(line, MOST_LINE) for line in lines), MOST_ERROR)


def shortened(text: str, most: int) -> str:
    """At most `most` characters, with a note of how many were cut."""
    half = most // 2 - 25
    return text if len(text) <= most else f"{text[:half]} [… {len(text) - 2 * half:,} characters …] {text[-half:]}"


def last_line(error: str | None) -> str:
    """The last line of an error, for the terminal: the exception of a traceback."""
    return shortened((error or "").strip().rpartition("\n")[2], MOST_SHOWN)


def closest(word: str, known: Iterable[str]) -> str | None:
    """The known word that `word` may be a misspelling of, or another library's name for."""
    by_case = {each.lower(): each for each in sorted(set(known))}
    if (other := ELSEWHERE.get(word.lower())) in by_case:
        return by_case[other]
    if (last := word.lower().rpartition(".")[2]) in by_case:  # `schedule.lr` for `lr`
        return by_case[last]
    close = difflib.get_close_matches(word.lower(), list(by_case), n=1, cutoff=0.5)
    return by_case[close[0]] if close else None


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of an error sentence: the closest of the known words, or all of them when none is close."""
    words = sorted(set(known))
    if close := closest(word, words):
        return f"did you mean '{close}'?"
    if not words:
        return "none are known"
    shown = ", ".join(words[:12]) + (", …" if len(words) > 12 else "")
    return f"known: {shown}"
