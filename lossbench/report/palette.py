"""How a loss is drawn in the whole report: one colour, marker and dash, by its place in the suite.

A grey for the baseline, Okabe & Ito's six that read on white, then colours chosen for the largest CIEDE2000 distance to
all others, for every kind of colour vision. Each has a twin of a similar hue for dark ground, chosen to be far from the
other twins. Markers and dashes serve readers who cannot distinguish colours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

# Baseline first; (on light ground, on dark ground).
COLOURS = (
    ("#555555", "#D3D7DC"),
    ("#0072B2", "#3A9BFD"),
    ("#D55E00", "#C24610"),
    ("#009E73", "#30AE9D"),
    ("#CC79A7", "#C9237C"),
    ("#E69F00", "#FDC010"),
    ("#56B4E9", "#49D7FE"),
    ("#5B2A86", "#875D8E"),
    ("#661100", "#B9827C"),
    ("#003F5C", "#0080A7"),
    ("#C2B280", "#A6A436"),
    ("#8478FF", "#9F24FA"),
    ("#9C003C", "#FD67B7"),
    ("#789048", "#39FF54"),
    ("#90603C", "#FE7A34"),
    ("#003CD8", "#2161FC"),
    ("#A83C90", "#EA1CF3"),
    ("#00606C", "#A4B6B4"),
    ("#90C0A8", "#1B7E1B"),
    ("#605400", "#D9F95F"),
    ("#B4B4CC", "#CD9FFE"),
    ("#3C1830", "#BA5DC9"),
    ("#547860", "#01B41D"),
    ("#243024", "#6DF2BE"),
    ("#847884", "#FAAFD7"),
)
MARKERS = "osD^vPXphd*<>"  # as matplotlib calls them
DASHES = ((), (5, 1.5), (1.2, 1.2), (5, 1.5, 1.2, 1.5))  # lengths of strokes and gaps in line widths; (): solid


class Look(NamedTuple):
    """The colours of a loss on light and on dark ground, its marker, and its dash."""

    light: str
    dark: str
    marker: str
    dash: tuple[float, ...]


def looks(labels: Sequence[str]) -> dict[str, Look]:
    """The look of every loss, the baseline first; all colours differ, also of more losses than there are colours."""
    found = {}
    for index, label in enumerate(labels):
        again, place = divmod(index, len(COLOURS))
        light, dark = (_mixed(colour, 0.8**again) for colour in COLOURS[place])
        dash = DASHES[(max(index - 1, 0) // 10 + again) % len(DASHES)]
        found[label] = Look(light, dark, MARKERS[(index + again) % len(MARKERS)], dash)
    return found


def _mixed(colour: str, share: float) -> str:
    """A share of the colour in a middle grey."""
    parts = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(share * part + (1 - share) * 128):02X}" for part in parts)
