"""The looks of losses: all different, legible on their ground, the same in the page and in the figures."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from lossbench.report.figures import style
from lossbench.report.output.html import DARK, LIGHT
from lossbench.report.palette import COLOURS, looks

LABELS = [f"loss{index}" for index in range(55)]


def linear(colour: str) -> np.ndarray:
    parts = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def oklab(colour: str) -> np.ndarray:
    """Ottosson's OKLab, in which equal distances look equally different."""
    to_cones = [[0.41222, 0.53633, 0.05145], [0.21190, 0.68070, 0.10740], [0.08830, 0.28172, 0.62998]]
    to_lab = [[0.21045, 0.79362, -0.00407], [1.97800, -2.42859, 0.45059], [0.02590, 0.78277, -0.80868]]
    return np.array(to_lab) @ np.cbrt(np.array(to_cones) @ linear(colour))


def contrast(first: str, second: str) -> float:
    light, dark = sorted((float(linear(colour) @ [0.2126, 0.7152, 0.0722]) for colour in (first, second)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("side", ["light", "dark"])
def test_twenty_four_losses_and_the_baseline_look_different(side):
    own = [getattr(look, side) for look in looks(LABELS[:25]).values()]
    least = min(float(np.linalg.norm(oklab(a) - oklab(b))) for a, b in itertools.combinations(own, 2))
    assert least > 0.07


@pytest.mark.parametrize(("side", "ground", "wanted"), [("light", LIGHT["panel"], 2), ("dark", DARK["panel"], 3)])
def test_every_colour_is_legible_on_its_ground(side, ground, wanted):
    assert min(contrast(getattr(look, side), ground) for look in looks(LABELS[:25]).values()) >= wanted


def test_more_losses_than_colours_still_have_colours_of_their_own():
    for side in ("light", "dark"):
        assert len({getattr(look, side) for look in looks(LABELS).values()}) == len(LABELS) > 2 * len(COLOURS)


def test_neighbours_differ_in_marker_and_later_losses_in_dash():
    found = list(looks(LABELS[:25]).values())
    assert all(a.marker != b.marker for a, b in itertools.pairwise(found))
    assert found[1].dash != found[11].dash


def test_a_loss_has_the_same_colour_and_marker_in_the_page_and_in_the_figures():
    figures, page = style.looks(LABELS[:25]), looks(LABELS[:25])
    for label in LABELS[:25]:
        assert (figures[label].colour, figures[label].marker) == (page[label].light, page[label].marker)
