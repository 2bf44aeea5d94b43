"""Search by cosine similarity among images of unseen classes: retrieval and identification.

Retrieval: every test image is a query against all others. A query has R relevant images, the others of its class; its
neighbours are ranked from 1 by falling cosine, equal cosines by their index. Of the ranks of the relevant images

    first         the lowest of them: recall@k is the share of queries with first ≤ k
    r_precision   #{ranks ≤ R} / R
    map_at_r      1/R · Σ over ranks r ≤ R of #{ranks ≤ r} / r      (Musgrave, Belongie & Lim, ECCV 2020)

An image without another of its class has no relevant image: it is no query, but stays in the gallery of the others.

Identification: of every class ("identity") with n ≥ 2 images the first ⌈n/2⌉ are enrolled, as one template

    t = Σ x̂ / ‖Σ x̂‖  over the unit features x̂ of the enrolled images,

and the others are probes; the score of a probe and an identity is the cosine of feature and template. Closed set: every
probe is searched among all identities. Open set, as in IJB-C: the identities are dealt in turn to two galleries, and
every probe is searched in both, so that it has a mate in one and none in the other. The image of an identity with a
single one is searched in both without a mate. With threshold t, over the searches of both galleries,

    TPIR(t) = share of mated searches whose highest score is that of the mate and at least t,
    FPIR(t) = share of searches without a mate whose highest score is at least t.

Images are in the order of the dataset and identities in that of their labels: nothing is drawn. Of equal scores, the
first identity has the highest.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from lossbench.metrics._pairs import Bools, Floats, Ints

if TYPE_CHECKING:
    from torch import Tensor

BLOCK = 128  # queries at a time, at most 2⁸: with N images, the memory is a few arrays of BLOCK×N
MOST = 2**24  # images


@dataclass(frozen=True, eq=False)  # arrays have no single answer to ==
class Retrieved:
    """The results of Q queries; the images of `alone` have no other of their class and are no queries."""

    queries: Ints  # (Q,) the images, rising
    alone: Ints
    relevant: Ints  # (Q,) R
    first: Ints  # (Q,)
    r_precision: Floats  # (Q,)
    map_at_r: Floats  # (Q,)


@dataclass(frozen=True, eq=False)
class Identified:
    """The results of P probes in the closed set, and of S searches in the open set."""

    identities: int  # that are enrolled
    singles: int  # identities with one image, which are only searched for
    rank: Ints  # (P,) of the probe's own identity among all, from 1
    highest: Floats  # (S,) the highest score
    mated: Bools  # (S,) whether the identity of the probe is in the gallery
    right: Bools  # (S,) whether it is, and has the highest score


def directions(rows: NDArray[Any]) -> Floats:
    """Rows of length 1, in float64; zero rows stay zero.

    Each is divided by its largest entry first, so that no square overflows or vanishes.
    """
    wide = np.asarray(rows, dtype=np.float64)
    if not np.isfinite(wide).all():
        raise ValueError("features must be finite")
    largest = np.abs(wide).max(axis=1, keepdims=True, initial=0.0)
    wide = wide / np.where(largest > 0, largest, 1.0)
    length = np.sqrt(np.einsum("pm,pm->p", wide, wide))[:, None]
    return np.asarray(wide / np.where(length > 0, length, 1.0))


def retrieve(features: Tensor, labels: NDArray[np.int64], block: int = BLOCK) -> Retrieved:
    """Search the other rows of `features` (N×M) for those with the label (N,) of each row, `block` queries at a time.

    Only the R_max nearest of each query are sorted, R_max + 1 being the size of the largest class. Cosines are float32.
    """
    import torch  # here: a report names tasks and needs no torch

    unit = torch.from_numpy(directions(features.cpu().numpy())).float().to(features.device)
    _, own, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    others = sizes[own] - 1
    queries, alone = np.flatnonzero(others > 0), np.flatnonzero(others == 0)
    if not len(queries):
        raise ValueError("no class has two images, so there is nothing to retrieve")
    if len(labels) > MOST:
        raise ValueError(f"retrieval is limited to {MOST:,} test images, there are {len(labels):,}")
    deepest = int(others.max())
    cosines = torch.empty(min(block, len(queries)), len(unit), device=unit.device)
    parts = []
    for start in range(0, len(queries), block):
        chosen = queries[start : start + block]
        torch.mm(unit[torch.from_numpy(chosen)], unit.T, out=cosines[: len(chosen)])
        similar = cosines[: len(chosen)].cpu().numpy()
        similar[np.arange(len(chosen)), chosen] = -np.inf  # no image finds itself
        parts.append(_ranked(similar, own, own[chosen], others[chosen], deepest))
    first, found, summed = (np.concatenate(part) for part in zip(*parts, strict=True))
    relevant = others[queries]
    return Retrieved(queries, alone, relevant, first, found / relevant, summed / relevant)


def _ranked(
    similar: NDArray[np.float32], own: Ints, wanted: Ints, relevant: Ints, deepest: int
) -> tuple[Ints, Ints, Floats]:
    """Of each row of `similar` (B×N): `first`, the relevant among its R nearest, and the sum in `map_at_r`.

    `own` (N,) is the class of each column; `wanted` (B,) and `relevant` (B,) are class and R of each row; no R is above
    `deepest`.
    """
    rows, columns = similar.shape
    edge = np.partition(similar, columns - deepest, axis=1)[:, columns - deepest, None]
    near = np.flatnonzero(similar >= edge)  # row by row, and more than `deepest` of a row whose last ones are equal
    row, column = (part.astype(np.uint64) for part in np.divmod(near, columns))
    # One sort by row, falling cosine and column: 8, 32 and 24 bits of a number.
    order = np.sort(row << 56 | _falling(similar.ravel()[near]).astype(np.uint64) << 24 | column)
    row, column = (order >> 56).astype(np.int64), (order & (2**24 - 1)).astype(np.int64)
    rank = np.arange(len(row)) - np.searchsorted(row, np.arange(rows))[row] + 1
    hit = np.flatnonzero(own[column] == wanted[row])
    row, rank = row[hit], rank[hit]  # of the relevant images alone
    before = np.arange(len(row)) - np.searchsorted(row, np.arange(rows))[row]
    within = rank <= relevant[row]
    found = np.bincount(row[within], minlength=rows)
    precision = (before[within] + 1) / rank[within]
    summed = np.bincount(row[within], precision, minlength=rows).astype(np.float64)  # of integers, if there are none
    first = np.zeros(rows, dtype=np.int64)
    first[row[::-1]] = rank[::-1]  # the lowest rank of a row is assigned last
    for missed in np.flatnonzero(first == 0):  # all relevant images are further away than the `deepest` nearest
        line = similar[missed]
        nearest = int(np.argmax(np.where(own == wanted[missed], line, -np.inf)))  # the lowest index of equal ones
        first[missed] = 1 + np.count_nonzero(line > line[nearest]) + np.count_nonzero(line[:nearest] == line[nearest])
    return first, found, summed


def identify(features: NDArray[Any], labels: NDArray[np.int64], block: int = BLOCK) -> Identified | None:
    """Search for the identities (N,) of the rows of `features` (N×M); None below two identities with two images."""
    import torch  # here: as above

    _, own, sizes = np.unique(labels, return_inverse=True, return_counts=True)
    several = sizes > 1
    if several.sum() < 2:
        return None
    order = np.argsort(own, kind="stable")
    number = np.empty(len(own), dtype=np.int64)  # of each image within its identity, from 0
    number[order] = np.arange(len(own)) - np.searchsorted(own[order], own[order])
    unit = directions(features)
    enrolled = several[own] & (number < (sizes[own] + 1) // 2)
    templates = np.zeros((len(sizes), unit.shape[1]))
    np.add.at(templates, own[enrolled], unit[enrolled])
    gallery = torch.from_numpy(directions(templates[several])).float().T
    side = np.arange(gallery.shape[1]) % 2
    probes = np.flatnonzero(~enrolled)  # and the images of identities with one
    mate = np.where(several, np.cumsum(several) - 1, -1)[own[probes]]  # their column of the gallery, or −1
    ranks, searches = [], []
    for start in range(0, len(probes), block):
        mine = mate[start : start + block]
        scores = (torch.from_numpy(unit[probes[start : start + block]]).float() @ gallery).numpy()
        known = np.flatnonzero(mine >= 0)
        score = scores[known, mine[known], None]
        above = (scores[known] > score).sum(1)
        earlier = (scores[known] == score) & (np.arange(scores.shape[1]) < mine[known, None])
        ranks.append(1 + above + earlier.sum(1))
        for part in (0, 1):
            columns = np.flatnonzero(side == part)
            best = columns[scores[:, columns].argmax(1)]
            mated = (mine >= 0) & (side[mine] == part)
            searches.append((scores[np.arange(len(mine)), best].astype(np.float64), mated, best == mine))
    highest, mated, right = (np.concatenate(each) for each in zip(*searches, strict=True))
    return Identified(int(several.sum()), int((~several).sum()), np.concatenate(ranks), highest, mated, right)


def _falling(similar: NDArray[np.float32]) -> NDArray[np.uint32]:
    """Integers in the opposite order of the numbers, by the bits of IEEE 754; 0 and −0 are equal."""
    bits = (similar + np.float32(0)).view(np.uint32)
    return np.where(bits >> 31, bits, bits ^ np.uint32(2**31 - 1))
