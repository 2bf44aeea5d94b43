"""How a loss is drawn in the whole report: one colour, marker and dash, by its place in the suite.

The first eleven colours are those of the figures: a grey for the baseline, Okabe & Ito's six that read on white, and
four that colour-blind readers can distinguish from them. The next ten are those of the sRGB gamut that are farthest
from all before them in OKLab. Each has a twin of a similar hue for dark ground, also chosen to be far from the others.
Markers and dashes serve readers who cannot distinguish colours.
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
    ("#9046E7", "#B9AAF8"),
    ("#B70F61", "#FF506B"),
    ("#3EC407", "#31DA62"),
    ("#2D37D2", "#435CE6"),
    ("#296F16", "#309909"),
    ("#E169FC", "#A961F1"),
    ("#8B5896", "#F86DDC"),
    ("#8A753C", "#747140"),
    ("#203501", "#B5FF55"),
    ("#9C3A11", "#FDA19B"),
)
MARKERS = "osD^vPXphd"  # as matplotlib calls them
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
        dash = DASHES[(max(index - 1, 0) // 10) % len(DASHES)]
        found[label] = Look(light, dark, MARKERS[(index + 3 * (max(index - 1, 0) // 10)) % len(MARKERS)], dash)
    return found


def _mixed(colour: str, share: float) -> str:
    """A share of the colour in a middle grey."""
    parts = [int(colour[at : at + 2], 16) for at in (1, 3, 5)]
    return "#" + "".join(f"{round(share * part + (1 - share) * 128):02X}" for part in parts)
