"""Characters as pictures: outlines of the fonts that matplotlib ships → masks → pictures in many poses.

Everything is +, −, ×, ÷ and √ of outlines in font units, so that a picture depends neither on the version of FreeType
nor on a machine's sine. matplotlib is imported when a font is opened, not before.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lossbench.core.errors import DataError

if TYPE_CHECKING:
    from matplotlib.ft2font import FT2Font

# The slanted cuts of sans and mono are left out: a pose shears the upright ones.
REGULAR = ("DejaVuSans", "DejaVuSerif", "DejaVuSerif-Italic", "DejaVuSansMono", "STIXGeneral", "STIXGeneralItalic")
BOLD = ("DejaVuSans-Bold", "DejaVuSerif-Bold", "DejaVuSerif-BoldItalic", "DejaVuSansMono-Bold")
BOLD_STIX = ("STIXGeneralBol", "STIXGeneralBolIta")
TEX = ("cmr10", "cmb10", "cmss10", "cmti10", "cmtt10")  # beyond letters and digits their codes are TeX's own

SUBLINES = 2  # scan lines per row of pixels, each covered exactly
CHORDS = 4  # straight pieces of a curve
MASTER, BOX = 64, 56  # pixels: the side of a master, and of the box in it that a character fills
POSE = 13  # random numbers per picture, besides those of its noise

Outline = NDArray[np.float64]  # E×4: straight edges x₀, y₀, x₁, y₁, y upwards


class Faces:
    """Open font files. Not to be shared with a forked process, which would share the file position, too."""

    def __init__(self, names: Sequence[str] = REGULAR + BOLD + BOLD_STIX + TEX) -> None:
        import matplotlib
        from matplotlib import ft2font

        folder = Path(matplotlib.get_data_path()) / "fonts" / "ttf"
        try:
            self._fonts: dict[str, FT2Font] = {name: ft2font.FT2Font(str(folder / f"{name}.ttf")) for name in names}
        except (OSError, RuntimeError) as error:
            raise DataError(f"{folder}: a font that matplotlib ships cannot be read ({error})") from error
        # A number until matplotlib 3.9, a name of an enumeration since.
        self._unscaled: Any = ft2font.LoadFlags.NO_SCALE if hasattr(ft2font, "LoadFlags") else 1

    def codes(self) -> set[int]:
        """The code points that any of the faces has."""
        return {code for font in self._fonts.values() for code in font.get_charmap()}

    def outline(self, name: str, code: int) -> Outline | None:
        """A character in one face; None if the face does not have it or draws nothing for it."""
        font = self._fonts[name]
        if not font.get_char_index(code) or (name in TEX and not (code < 128 and chr(code).isalnum())):
            return None
        font.load_char(code, flags=self._unscaled)
        points, kinds = font.get_path()
        ends = np.flatnonzero(kinds == 2)  # of straight lines, which begin at the point before
        middles = np.flatnonzero(kinds == 3)[::2]  # of parabolas: the point between the tangents, then the end
        start, middle, end = points[middles - 1], points[middles], points[middles + 1]
        t = (np.arange(CHORDS + 1) / CHORDS)[:, None, None]
        curve = (1 - t) * ((1 - t) * start + t * middle) + t * ((1 - t) * middle + t * end)
        lines = np.hstack([points[ends - 1], points[ends]])
        chords = np.concatenate([curve[:-1], curve[1:]], axis=2).reshape(-1, 4)
        return np.concatenate([lines, chords]) if len(lines) + len(chords) else None

    def outlines(self, code: int) -> list[Outline]:
        """A character in every face that has it."""
        found = [outline for name in self._fonts if (outline := self.outline(name, code)) is not None]
        if not found:
            raise DataError(f"none of the fonts that this matplotlib ships draws the character U+{code:04X}")
        return found


def masks(outlines: Sequence[Outline], side: int, box: float, *, squared: bool = False) -> NDArray[np.float32]:
    """K outlines → K×side×side, the share of each pixel that is ink: centred, the longer extent `box` pixels.

    `squared` lengthens the shorter extent too (a share a of the longer becomes ⁴√a): for comparing characters whose
    pictures will be stretched at random.

    A scan line y = (k + ½)/SUBLINES meets each edge at some x, and from there on the winding number is one more or
    less: the pixel that x divides takes its part of the step, the next one the rest, and a running sum fills the line.
    """
    edges = np.concatenate([_fitted(outline, side, box, squared) for outline in outlines])
    mask = np.repeat(np.arange(len(outlines)), [len(outline) for outline in outlines])
    x0, y0, x1, y1 = edges.T
    first = np.ceil(np.minimum(y0, y1) * SUBLINES - 0.5).astype(np.int64)
    count = np.ceil(np.maximum(y0, y1) * SUBLINES - 0.5).astype(np.int64) - first
    slope = (x1 - x0) / np.where(count, y1 - y0, 1)
    edge = np.repeat(np.arange(len(edges)), count)  # from here on, one entry for each crossing
    line = first[edge] + np.arange(len(edge)) - np.repeat(np.cumsum(count) - count, count)
    x = x0[edge] + ((line + 0.5) / SUBLINES - y0[edge]) * slope[edge]
    step = np.where(y1 > y0, 1.0, -1.0)[edge]
    pixel = np.floor(x).astype(np.int64)
    rest = (x - pixel) * step
    lines = side * SUBLINES
    place = (mask[edge] * lines + (lines - 1 - line)) * (side + 1) + pixel  # an image's rows run downwards
    size = len(outlines) * lines * (side + 1)
    steps = np.bincount(place, step - rest, size) + np.bincount(place + 1, rest, size)
    winding = np.cumsum(steps.astype(np.float32).reshape(-1, side, SUBLINES, side + 1), axis=-1)[..., :side]
    ink: NDArray[np.float32] = np.minimum(np.abs(winding, out=winding), 1, out=winding).mean(axis=2)
    return ink


def blurred(images: NDArray[np.float32], times: int) -> NDArray[np.float32]:
    """K×H×W under the filter ¼ (1 2 1) along both axes, `times` over: nearly a Gaussian of variance `times`/2."""
    wide = np.pad(images, ((0, 0), (times, times), (times, times)))
    for _ in range(2 * times):  # (1 1) twice is (1 2 1)
        wide = wide[:, 1:] + wide[:, :-1]
    for _ in range(2 * times):
        wide = wide[:, :, 1:] + wide[:, :, :-1]
    return wide * np.float32(16.0**-times)


def masters(outlines: Sequence[Outline]) -> NDArray[np.float32]:
    """K×MASTER×MASTER, what pictures are sampled from: masks whose edges are slopes, σ = √3 pixels.

    The blur is the filter against aliasing when every third pixel is sampled; and ink above a higher or lower level on
    the slope is a thinner or thicker stroke.
    """
    return blurred(masks(outlines, MASTER, BOX), 6)


def pictures(
    masters: NDArray[np.float32],
    chance: NDArray[np.float64],
    grain: NDArray[np.float32],
    difficulty: float,
) -> NDArray[np.uint8]:
    """n pictures, n×side×side, from uniform numbers of [−1, 1): `chance`, n×POSE, and `grain`, n×side×side, the noise.

    The pixel at p = (u, v), measured from the middle in sides, shows the place (x, y) of a master, in boxes,

        (x, y) = diag(1/r, r)/s · (1 k; 0 1) · R(φ) · q + (b₁ q₂², b₂ q₁²)      q = p − shift

    of a random face: s is the size, r the stretch, k the shear, φ the angle, b the bend. The master's value m becomes
    ink = clip(g·(m − level) + ½, 0, 1), where the gain g keeps edges one pixel wide at any side, and the pixel is
    ground + contrast·ink + noise. `difficulty` scales all that varies, except the face.
    """
    side = grain.shape[1]
    face = ((chance[:, 0] + 1) / 2 * len(masters)).astype(np.int64)
    turn, shear, stretch, size, right, down, b1, b2, level, dark, pale, noise = (difficulty * chance[:, 1:]).T
    half = 0.14 * turn  # tan φ/2: 0.14 is 16°
    cosine, sine = (1 - half**2) / (1 + half**2), 2 * half / (1 + half**2)
    k, r, s = 0.25 * shear, 1 + 0.15 * stretch, 0.73 * (1 + 0.15 * size)
    grid = ((np.arange(side) + 0.5) / side - 0.5)[None]
    u = (grid - 0.1 * right[:, None])[:, None, :].astype(np.float32)
    v = (grid - 0.1 * down[:, None])[:, :, None].astype(np.float32)
    x = _each((cosine + k * sine) / (r * s)) * u + _each((k * cosine - sine) / (r * s)) * v + _each(0.3 * b1) * v**2
    y = _each(sine * r / s) * u + _each(cosine * r / s) * v + _each(0.3 * b2) * u**2

    image = _sampled(masters, face, x, y)
    image -= _each(np.clip(0.37 + 0.12 * level, 0.25, 0.5))  # ¼: with the least gain, what is empty stays without ink
    image *= np.float32(2 * max(1.0, side / 28))
    image += np.float32(0.5)
    np.clip(image, 0, 1, out=image)
    ground = 0.1 * (difficulty + dark)
    image *= _each((1 - ground) / (1 + 0.35 * (difficulty + pale)))
    image += _each(ground)
    image += _each(0.13 * (difficulty + noise)) * grain
    image *= np.float32(255)
    return np.rint(np.clip(image, 0, 255, out=image), out=image).astype(np.uint8)


def _fitted(outline: Outline, side: int, box: float, squared: bool) -> Outline:
    """An outline in pixels, in the middle of side×side."""
    points = outline.reshape(-1, 2)
    low, high = points.min(axis=0), points.max(axis=0)
    extent = np.maximum(high - low, 1e-3)  # a line without any width would divide by zero
    share = extent / extent.max()
    scale = (np.sqrt(np.sqrt(share)) if squared else share) * box / extent
    fitted: Outline = (points - (low + high) / 2) * scale + side / 2
    return fitted.reshape(-1, 4)


def _each(numbers: NDArray[np.float64]) -> NDArray[np.float32]:
    """One number for each picture, n×1×1."""
    return numbers.astype(np.float32)[:, None, None]


def _sampled(
    masters: NDArray[np.float32], face: NDArray[np.int64], x: NDArray[np.float32], y: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Each picture's master at places (n×side×side, in boxes from its middle): bilinear, empty outside."""
    last = MASTER - 1
    x = np.clip(x * np.float32(BOX) + np.float32(last / 2), 0, np.float32(last - 1e-3))  # the margin is empty
    y = np.clip(y * np.float32(BOX) + np.float32(last / 2), 0, np.float32(last - 1e-3))
    column, row = x.astype(np.int64), y.astype(np.int64)
    x -= column
    y -= row
    place = (face[:, None, None] * MASTER + row) * MASTER + column
    flat = masters.reshape(-1)
    upper, lower = flat.take(place), flat.take(place + MASTER)
    place += 1
    upper += x * (flat.take(place) - upper)
    lower += x * (flat.take(place + MASTER) - lower)
    return upper + y * (lower - upper)
