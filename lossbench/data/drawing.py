"""Characters as pictures: outlines of the fonts that matplotlib ships → masks → images in many poses.

Everything is +, −, ×, ÷ and √ of IEEE numbers on outlines in font units, so that a picture depends neither on the
version of FreeType nor on a machine's sine. matplotlib is imported on first use only.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lossbench.errors import DataError

if TYPE_CHECKING:
    from matplotlib.ft2font import FT2Font

# Slanted cuts of sans and mono are left out: a pose shears them anyway. The first face that has a character is its home.
REGULAR = ("DejaVuSans", "DejaVuSerif", "DejaVuSerif-Italic", "DejaVuSansMono", "STIXGeneral", "STIXGeneralItalic")
BOLD = ("DejaVuSans-Bold", "DejaVuSerif-Bold", "DejaVuSerif-BoldItalic", "DejaVuSansMono-Bold")
BOLD_STIX = ("STIXGeneralBol", "STIXGeneralBolIta")
TEX = ("cmr10", "cmb10", "cmss10", "cmti10", "cmtt10")  # beyond letters and digits their codes are TeX's own
FACES = REGULAR + BOLD + BOLD_STIX + TEX

SUBLINES = 4  # a row of pixels is the mean of so many scan lines, each covered exactly
CHORDS = 4  # straight pieces of a curve; at 64 pixels they are a tenth of a pixel from it
MASTER, BOX = 64, 56  # pixels
POSE = 13  # uniform numbers that one picture needs

Outline = NDArray[np.float64]  # E×4: straight edges x₀, y₀, x₁, y₁ in font units, y upwards


class Faces:
    """Font files, opened; not shared between processes, since a fork would share the place in the file too."""

    def __init__(self, names: Sequence[str] = FACES) -> None:
        import matplotlib
        from matplotlib import ft2font

        folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
        try:
            self._fonts: dict[str, FT2Font] = {name: ft2font.FT2Font(str(folder / f"{name}.ttf")) for name in names}
        except (OSError, RuntimeError) as error:
            raise DataError(f"{folder}: a font that matplotlib ships cannot be read ({error})") from error
        # The flag's name since matplotlib 3.10, and its number before.
        self._unscaled: Any = ft2font.LoadFlags.NO_SCALE if hasattr(ft2font, "LoadFlags") else 1

    def codes(self, name: str) -> list[int]:
        """The characters that a face has."""
        return list(self._fonts[name].get_charmap())

    def outline(self, name: str, code: int) -> Outline | None:
        """A character of a face; None when the face has none, or draws nothing for it."""
        font = self._fonts[name]
        if not font.get_char_index(code) or (name in TEX and not (code < 128 and chr(code).isalnum())):
            return None
        font.load_char(code, flags=self._unscaled)
        points, kinds = font.get_path()
        ends = np.flatnonzero(kinds == 2)  # a line ends here
        bends = np.flatnonzero(kinds == 3)[::2]  # a parabola's control point; its end is the next
        start, control, end = points[bends - 1], points[bends], points[bends + 1]
        t = (np.arange(CHORDS + 1) / CHORDS)[:, None, None]
        curve = (1 - t) * ((1 - t) * start + t * control) + t * ((1 - t) * control + t * end)
        lines = np.hstack([points[ends - 1], points[ends]])
        chords = np.concatenate([curve[:-1], curve[1:]], axis=2).reshape(-1, 4)
        edges = np.concatenate([lines, chords])
        return edges if len(edges) else None

    def outlines(self, code: int) -> list[Outline]:
        """A character in every face that has it."""
        found = [outline for name in self._fonts if (outline := self.outline(name, code)) is not None]
        if not found:
            raise DataError(f"none of the fonts that matplotlib ships draws the character U+{code:04X}")
        return found


def masks(outlines: Sequence[Outline], side: int, box: float, *, squared: bool = False) -> NDArray[np.float32]:
    """Outlines → K×side×side: how much of each pixel is ink, the character centred in a box of `box` pixels.

    The longer extent fills the box. `squared` moves the shorter towards it too (its share a becomes ⁴√a), for comparing
    characters whose pictures are stretched at random.

    Each scan line y = (k + ½)/SUBLINES meets the edges at some x; from there on the winding number changes by ±1. A
    pixel that x divides takes its part, the next one the rest, and a running sum along the line gives the winding.
    """
    edges = np.concatenate([_fitted(outline, side, box, squared) for outline in outlines])
    mask = np.repeat(np.arange(len(outlines)), [len(outline) for outline in outlines])
    x0, y0, x1, y1 = edges.T
    first = np.ceil(np.minimum(y0, y1) * SUBLINES - 0.5).astype(np.int64)
    count = np.ceil(np.maximum(y0, y1) * SUBLINES - 0.5).astype(np.int64) - first
    edge = np.repeat(np.arange(len(edges)), count)  # of each crossing
    line = first[edge] + np.arange(len(edge)) - np.repeat(np.cumsum(count) - count, count)
    slope = (x1 - x0) / np.where(count, y1 - y0, 1)
    x = x0[edge] + ((line + 0.5) / SUBLINES - y0[edge]) * slope[edge]
    sign = np.where(y1 > y0, 1.0, -1.0)[edge]
    pixel = np.floor(x).astype(np.int64)
    rest = (x - pixel) * sign
    lines = side * SUBLINES
    at = (mask[edge] * lines + (lines - 1 - line)) * (side + 1) + pixel  # an image's rows run downwards
    size = len(outlines) * lines * (side + 1)
    change = np.bincount(at, sign - rest, size) + np.bincount(at + 1, rest, size)
    winding = np.cumsum(change.reshape(-1, side, SUBLINES, side + 1), axis=-1)[..., :side]
    return np.minimum(np.abs(winding), 1).mean(axis=2).astype(np.float32)


def _fitted(outline: Outline, side: int, box: float, squared: bool) -> Outline:
    points = outline.reshape(-1, 2)
    low, high = points.min(axis=0), points.max(axis=0)
    extent = np.maximum(high - low, 1e-3)
    share = extent / extent.max()
    scale = (np.sqrt(np.sqrt(share)) if squared else share) * box / extent
    return ((points - (low + high) / 2) * scale + side / 2).reshape(-1, 4)


def blurred(images: NDArray[np.float32], times: int = 1) -> NDArray[np.float32]:
    """K×H×W under the binomial filter ¼ (1 2 1) along both axes, `times` over: variance `times`/2 square pixels."""
    for _ in range(times):
        wide = np.pad(images, ((0, 0), (1, 1), (1, 1)))
        wide = wide[:, :-2] + 2 * wide[:, 1:-1] + wide[:, 2:]
        images = (wide[:, :, :-2] + 2 * wide[:, :, 1:-1] + wide[:, :, 2:]) * np.float32(1 / 16)
    return images


def masters(outlines: Sequence[Outline]) -> NDArray[np.float32]:
    """K×64×64, what pictures are sampled from: the longer extent 56 pixels, edges softened by σ = √3 pixels.

    The blur is the low-pass filter for sampling about every third pixel; and since it makes an edge a slope, a level
    higher or lower on it is a thinner or thicker stroke.
    """
    return blurred(masks(outlines, MASTER, BOX), 6)


def pictures(
    masters: NDArray[np.float32],
    chance: NDArray[np.float64],
    grain: NDArray[np.float32],
    side: int,
    difficulty: float,
) -> NDArray[np.uint8]:
    """n pictures (n×side×side) from n×POSE and n×side×side uniform numbers of [−1, 1), the second for the noise.

    A pixel at (u, v) ∈ [−½, ½]², from the middle of the picture, shows the master at

        (x, y) = diag(1/(s·r), r/s) · (1 k; 0 1) · R(φ) · ((u, v) − shift) + bend · (v², u²)

    with s the size, r the stretch, k the shear, φ the angle; as ink p = clip(g·(master − level) + ½), sharper for
    larger pictures; and becomes ground + (ink − ground)·p + noise. `difficulty` scales what varies, but for the face.
    """
    face, *rest = chance.T
    turn, shear, stretch, size, right, down, bend_x, bend_y, level, ground, ink, noise = (
        difficulty * part for part in rest
    )
    which = ((face + 1) / 2 * len(masters)).astype(np.int64)

    half = 0.12 * turn  # tan φ/2: the angle is up to ±14°
    cosine, sine = (1 - half**2) / (1 + half**2), 2 * half / (1 + half**2)
    across = 1 / (0.74 * (1 + 0.14 * size)) / (1 + 0.14 * stretch)
    along = 1 / (0.74 * (1 + 0.14 * size)) * (1 + 0.14 * stretch)
    k = 0.22 * shear
    a, b = across * (cosine + k * sine), across * (k * cosine - sine)
    c, d = along * sine, along * cosine
    grid = ((np.arange(side) + 0.5) / side - 0.5).astype(np.float32)
    u = grid - _column(0.09 * right)[..., 0]
    v = grid - _column(0.09 * down)[..., 0]
    u, v = u[:, None, :], v[:, :, None]
    x = _column(a) * u + _column(b) * v + _column(0.25 * bend_x) * (v * v)
    y = _column(c) * u + _column(d) * v + _column(0.25 * bend_y) * (u * u)
    value = _sampled(masters, which, x, y)
    value -= _column(0.37 + 0.12 * level)
    value *= np.float32(2 * max(side / 28, 0.75))
    value += np.float32(0.5)
    np.clip(value, 0, 1, out=value)
    dark = 0.1 * (difficulty + ground)
    bright = 1 - 0.2 * (difficulty + ink)
    value *= _column(bright - dark)
    value += _column(dark)
    value += _column(0.13 * (difficulty + noise)) * grain
    value *= np.float32(255)
    return np.rint(np.clip(value, 0, 255, out=value)).astype(np.uint8)


def _column(numbers: NDArray[np.float64]) -> NDArray[np.float32]:
    """n numbers as n×1×1."""
    return numbers.astype(np.float32)[:, None, None]


def _sampled(masters, which, x, y):
    """The masters at fractional places: bilinear, and empty outside."""
    last = MASTER - 1
    x = np.clip(x * np.float32(BOX) + np.float32(last / 2), 0, np.float32(last - 1e-3))
    y = np.clip(y * np.float32(BOX) + np.float32(last / 2), 0, np.float32(last - 1e-3))
    column, row = x.astype(np.int64), y.astype(np.int64)
    x -= column
    y -= row
    at = which[:, None, None] * MASTER**2 + row * MASTER + column
    flat = masters.ravel()
    upper = flat.take(at)
    upper += x * (flat.take(at + 1) - upper)
    at += MASTER
    lower = flat.take(at)
    lower += x * (flat.take(at + 1) - lower)
    lower -= upper
    lower *= y
    lower += upper
    return lower
