"""The exceptions a user can act on, and the sentence that helps them to.

LossbenchError          anything below; the command line prints it as one sentence and exits with 2
├── SuiteError          the suite file asks for something that cannot be
├── PluginError         a plugin is missing, twice there, or not what it should be
├── DataError           a dataset is unknown, absent or damaged
├── StoreError          a run folder cannot be read or written
└── RunError            a run that had begun could not go on; exit code 1, since some cells did not finish
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


def nearest(word: str, known: Iterable[str]) -> str:
    """The end of an error sentence: the closest of the known words, or all of them when none is close."""
    words = sorted(set(known))
    if close := difflib.get_close_matches(word, words, n=1, cutoff=0.5):
        return f"did you mean '{close[0]}'?"
    if not words:
        return "there is none to choose from"
    shown = ", ".join(words[:12]) + (", …" if len(words) > 12 else "")
    return f"known: {shown}"
