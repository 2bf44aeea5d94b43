"""The exceptions a user can act on, and the sentence that helps them to.

LossbenchError          anything below; the command line prints it as one sentence and exits with 2
├── SuiteError          the suite file asks for something that cannot be
├── PluginError         a plugin is missing, twice there, or not what it should be
├── DataError           a dataset is unknown, absent or damaged
├── StoreError          a run folder cannot be read or written
└── RunError            a run that had begun could not go on; exit code 1, since some cells did not finish
    └── ClusterLostError    the Ray cluster it ran on is gone
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class LossbenchError(Exception):
    """A request that cannot be met; its text says what, where and the nearest valid thing."""


class SuiteError(LossbenchError):
    """The suite file asks for something that cannot be."""


class PluginError(LossbenchError):
    """A plugin is missing, twice there, or not what it should be."""


class DataError(LossbenchError):
    """A dataset is damaged, or cannot be what is asked of it."""


class MissingDataError(DataError):
    """The files of a dataset are not here: what does not need them can still run."""


class StoreError(LossbenchError):
    """A run folder cannot be read or written."""


class RunError(LossbenchError):
    """A run that had begun could not go on; what it finished is kept."""


class ClusterLostError(RunError):
    """Ray's head, or its daemon on this machine, is gone; Ray ends a process that was connected, sooner or later."""


MOST_ERROR, MOST_LINE, MOST_SHOWN = 20_000, 2_000, 300  # characters: in a record, in a line of it, in a terminal


def bounded(text: str) -> str:
    """An error text as a record keeps it: valid Unicode, and of what is long the beginning and the end."""
    lines = text.encode(errors="backslashreplace").decode().split("\n")
    return shortened("\n".join(shortened(line, MOST_LINE) for line in lines), MOST_ERROR)


def shortened(text: str, most: int) -> str:
    """At most `most` characters, with a note of how many were left out."""
    half = most // 2 - 25
    return text if len(text) <= most else f"{text[:half]} [… {len(text) - 2 * half:,} characters …] {text[-half:]}"


def last_line(error: str | None) -> str:
    """What an error comes to, in a line for the terminal: of a traceback the exception."""
    return shortened((error or "").strip().rpartition("\n")[2], MOST_SHOWN)


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of an error sentence: the closest of the known words, or all of them when none is close."""
    words = sorted(set(known))
    if close := difflib.get_close_matches(word, words, n=1, cutoff=0.5):
        return f"did you mean '{close[0]}'?"
    if not words:
        return "there is none to choose from"
    shown = ", ".join(words[:12]) + (", …" if len(words) > 12 else "")
    return f"known: {shown}"
