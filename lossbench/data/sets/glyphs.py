"""Printed characters, 28×28: 100 classes or any number up to 2,759, drawn from matplotlib's fonts, offline.

A class is one character in all faces of DejaVu, STIX and Computer Modern that have it: turned, sheared, stretched,
bent, thicker or thinner, paler, noisy. Of characters that look alike (A, Α and А; 0, O and o) only the first is one.
Digits come first, then Latin, Greek and Cyrillic letters, then all by code point. Fewer classes, or fewer images of
each, are always the first ones of more.
"""

from __future__ import annotations

import base64
import unicodedata
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from lossbench.core.errors import DataError
from lossbench.core.streams import derive
from lossbench.data import Dataset, Split
from lossbench.data.drawing import POSE, REGULAR, Faces, blurred, masks, masters, pictures
from lossbench.data.pairs import drawn_pairs

ALIKE = 0.9  # characters whose pictures correlate more than this are one class
# Scaled copies and other fonts of another character, by the tag of their decomposition in Unicode.
VARIANTS = {"<font>", "<super>", "<sub>", "<wide>", "<narrow>", "<small>"}
# Box drawing, Braille, hexagrams, tetragrams, dominoes and cards: patterns of marks, which small pictures do not show.
PATTERNS = ((0x2500, 0x259F), (0x2800, 0x28FF), (0x4DC0, 0x4DFF), (0x1D300, 0x1D35F), (0x1F030, 0x1F0FF))
BLOCK = 50_000  # pixels drawn at a time: the arrays stay in a processor's cache


def load(
    root: Path,
    *,
    classes: int = 100,
    per_class: int = 100,
    test_per_class: int = 20,
    side: int = 28,
    difficulty: float = 1.0,
    task: Literal["classification", "verification", "retrieval"] = "classification",
    unseen: int = 100,
    pairs_per_fold: int = 600,
) -> Dataset:
    """Images of `side`×`side` pixels; `difficulty` 0 is clean print, 2 is hard to read.

    Classification: training and test images of the same classes. Verification and retrieval: test images of `unseen`
    other characters, taken evenly from all scripts; they stay the same when `classes` changes.
    """
    known = characters()
    held = 0 if task == "classification" else unseen
    _check("unseen", held, 0, len(known) - 2)
    _check("classes", classes, 2, len(known) - held, f"glyphs has {len(known)} characters, of which {held} stay unseen")
    _check("per_class", per_class, 1, 10**6)
    _check("test_per_class", test_per_class, 1, 10**6)
    _check("side", side, 16, 256)
    _check("difficulty", difficulty, 0, 2)
    _check("pairs_per_fold", pairs_per_fold, 2, 10**6)
    if task == "classification":
        train = _split(known[:classes], "train", per_class, side, difficulty)
        return Dataset(train, _split(known[:classes], "test", test_per_class, side, difficulty), classes)
    evenly = {(2 * place + 1) * len(known) // (2 * unseen) for place in range(unseen)}
    others = [code for place, code in enumerate(known) if place not in evenly]
    train = _split(others[:classes], "train", per_class, side, difficulty)
    test = _split([known[place] for place in sorted(evenly)], "test", test_per_class, side, difficulty, classes)
    if task == "retrieval":
        return Dataset(train, test, classes)
    pairs, folds = drawn_pairs(test.labels, pairs_per_fold)
    return Dataset(train, test, classes, pairs=pairs, folds=folds)


@dataclass(frozen=True)
class Glyphs:
    """`per_class` pictures of each character in turn, drawn on demand.

    A picture is a function of its character, part ("train" or "test"), number in its class, side and difficulty: every
    class has a stream of poses and one of noise, from which each picture takes the next few numbers.
    """

    codes: tuple[int, ...]
    part: str
    per_class: int
    side: int
    difficulty: float

    @property
    def shape(self) -> tuple[int, int, int, int]:
        return len(self.codes) * self.per_class, self.side, self.side, 1

    def blocks(self) -> Iterator[NDArray[np.uint8]]:
        faces = Faces()
        most = max(1, BLOCK // self.side**2)
        for code in self.codes:
            drawn_from = masters(faces.outlines(code))
            # The bits of Philox, not numpy's distributions: only they are promised to stay.
            pose, noise = (np.random.Philox(key=derive(0, "glyphs", code, self.part, use)) for use in ("pose", "noise"))
            for start in range(0, self.per_class, most):
                count = min(most, self.per_class - start)
                words = pose.random_raw(count * POSE).reshape(count, POSE)
                chance = (words >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1
                grain = self._grain(noise, count)
                yield pictures(drawn_from, chance, grain, self.difficulty)[..., None]

    def _grain(self, noise: np.random.Philox, count: int) -> NDArray[np.float32]:
        """count×side×side uniform numbers of (−1, 1), four from each word of the stream."""
        pixels = self.side**2
        words = noise.random_raw(count * -(-pixels // 4)).astype("<u8").view("<u2").reshape(count, -1)[:, :pixels]
        grain: NDArray[np.float32] = (words - np.float32(32767.5)) * np.float32(2**-15)
        return grain.reshape(count, self.side, self.side)


def _split(codes: Sequence[int], part: str, per_class: int, side: int, difficulty: float, first: int = 0) -> Split:
    """The images of some characters, labelled from `first`."""
    labels = np.repeat(np.arange(first, first + len(codes)), per_class)
    return Split.of(Glyphs(tuple(codes), part, per_class, side, difficulty), labels)


def _check(name: str, value: float, least: float, most: float, why: str = "") -> None:
    if not least <= value <= most:
        raise DataError(f"{name} must be between {least} and {most}, got {value}" + (f"; {why}" if why else ""))


@cache
def characters() -> tuple[int, ...]:
    """The code points that are classes, in order."""
    bits = np.unpackbits(np.frombuffer(zlib.decompress(base64.b85decode(CHOSEN)), dtype=np.uint8))
    return tuple(sorted(np.flatnonzero(bits).tolist(), key=_rank))


def _rank(code: int) -> tuple[int, int]:
    """Digits, then basic Latin, Greek and Cyrillic letters, then all by code point."""
    character = chr(code)
    basic = not unicodedata.decomposition(character)  # no accent
    groups = (
        character in "0123456789",
        code < 128 and character.isalpha(),
        0x391 <= code <= 0x3C9 and basic,
        0x410 <= code <= 0x44F and basic,
    )
    return groups.index(True) if any(groups) else len(groups), code


def chosen() -> list[int]:
    """What CHOSEN holds, found again from the fonts in a few seconds: every character unlike all before it.

    Two characters are alike when their masks (24×24, box of 20 pixels, blurred) correlate by more than ALIKE in any
    regular face that has both, or each in the first face that has it. The masks are whole numbers up to 127, whose
    products add up to less than 2²⁴: exact in float32, so that no machine chooses otherwise.
    """
    faces = Faces(REGULAR)
    codes = sorted((code for code in faces.codes() if _is_candidate(code)), key=_rank)
    alike = np.zeros((len(codes), len(codes)), dtype=bool)
    first_face = np.zeros((len(codes), 24 * 24), dtype=np.float32)
    for name in REGULAR:
        outlines = {
            place: found for place, code in enumerate(codes) if (found := faces.outline(name, code)) is not None
        }
        at, shapes = np.array(list(outlines)), list(outlines.values())
        blocks = (masks(shapes[start : start + 256], 24, 20, squared=True) for start in range(0, len(shapes), 256))
        images = np.rint(np.concatenate([blurred(block, 1) for block in blocks]) * 127).reshape(len(at), -1)
        _mark(alike, at, images)
        new = ~first_face[at].any(axis=1)
        first_face[at[new]] = images[new]
    drawn = np.flatnonzero(first_face.any(axis=1))
    _mark(alike, drawn, first_face[drawn])
    kept = []
    dropped = np.ones(len(codes), dtype=bool)
    dropped[drawn] = False
    for place, code in enumerate(codes):
        if not dropped[place]:
            kept.append(code)
            dropped |= alike[place]
    return kept


def _is_candidate(code: int) -> bool:
    """Visible and itself: no space, combining mark, control or private code, variant or pattern."""
    character = chr(code)
    tag = unicodedata.decomposition(character).partition(" ")[0]
    is_pattern = any(first <= code <= last for first, last in PATTERNS)
    return unicodedata.category(character)[0] not in "CMZ" and tag not in VARIANTS and not is_pattern


def _mark(alike: NDArray[np.bool_], at: NDArray[np.int64], images: NDArray[np.float32]) -> None:
    """Set alike[at[i], at[j]] where the images i and j ≥ i (n×pixels) correlate by more than ALIKE."""
    pixels = images.shape[1]
    total = images.sum(axis=1, dtype=np.float64)
    spread = np.sqrt(pixels * (images.astype(np.float64) ** 2).sum(axis=1) - total**2)
    for start in range(0, len(at), 512):  # a stripe of the matrix at a time: all of it would be a quarter of a gigabyte
        rows, later = slice(start, start + 512), slice(start, None)
        products = (images[rows] @ images[later].T).astype(np.float64)
        products *= pixels
        products -= total[rows, None] * total[later]
        alike[at[rows, None], at[later]] |= products > ALIKE * spread[rows, None] * spread[later]


# One bit for each code point, compressed; tests/data/test_glyphs.py finds them again.
CHOSEN = (
    "c-rmRYiLtv7y#h+B&mt<tT}C+)f(EEj<&jDgF;)@)*Pe^osM?iu-z?F3f@rJm=3z-oTSlJH*{<;l)>6%B3<@l@iKpSY0~Y7Wl7hKjSj7tqk$>)lI"
    "rP}*qoeqsh5gUQM_#6-sji(?jP^>eg_T*06;)Qr4xr^eXHiCi%@m)r?wW)TgTn5UuqX<xo|1ua$EVbax+vq<{x;OJu<D~+qx1BQ+;7Y4)FZE*Esg"
    "GsAb3AZN|YRO)vgl{whKRz{j8KgAClsTcSJLs>%Kt^Mysp+-QebV%zu<r`>$L(eQ#VG|*n;^EG;kd`nAVHfJz?zh?XM!47yc{ztQK0`xW3=U8sc#"
    "KG{6fD{Cc1G3&oqQfZxIO8yxmp83YqBU0m#B?ts+)HyW#!7(=!qZ_i(5v^DoJ(i>b;BTZKkQ_Y<j_Y7^f%!p9DLFnpJ`8>k@CiGz>F?b8~gFkwSh"
    "~Xx+9L%P{E-<FJb}^lj-!dqkUKaQ&h35a7?*J02meQxH$n&k?hu~#q8~(X<^Zw?H9xBPM8lZHqfz5J!j<oubgFBV01jchzp9gY_G+kv97T|hdWEN"
    "l>xWc;&uBt;Pr(XV7cp2TLz)jnbf({x8^*D=cQZEr+H(`lDT@nVb<!eEBv{BiI>ARL^VHm@zu;je>3aClgkD&pNV7ST0DX>mR)=I?Z5EHeuJW5uM"
    "&%|HASSIYH<o9hdVJUhp!CkCY@|G0cb&w;*B+KUTHWrdK)#%r789E`1Y}5Qsen*;tvb)Sn4uJ$v_?A2d?kZuQ2s>^j9pKluno9b>iUYJx_*yd(W#"
    ")G>Q2u<vCsJy9`<T1n1#MH`WBI6B+l5|A#iulrMD+7zmDRS&;1sXF3&!YGdz2QHc#y=Nz5ByRZ|DZDp8}1G1X$bP5W#CEHL~C#d442{K9|BnvTNx"
    "bImP?U`=5yADqr?0Fx!f~nc%`zyyD=6ddtGHhhYn+Kr*LI@#*5JCtc<liPj2IM_(Z^HtZF=LE+9SbF)ys-9@D=<F&nQOI*Ac&)_85Cwh2qA<J@;L"
    "QD0Rx5O08D0AcaJ&vEZ6fZZyssM6m=r#AMa}NE<<~W`NCVZyS-|^yV6?xpZ^POFsnRAX+Q`egb+dqA%qY@2qA<JLI@%M594YddgwQwy0%!iH187s"
    "0qfOSO8"
)
