"""How often a report is wrong: its verdicts on made-up studies whose truth is known, as Markdown.

    python tests/benchmarks/truth.py [--draws 2000] [--seed 0]

A study has a baseline and seven losses. Verdicts, flags and intervals come from the functions behind the tables and
claims of a report. Every rate is beside the one to hold; past it by more than two standard errors of the simulation,
it is marked as not held.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from lossbench import stats
from lossbench.analysis.claim_tests import SUPPORTED, judged_trend
from lossbench.analysis.measured import Contrast
from lossbench.analysis.verdicts import ONE_SEED, Judged, judged

SEEDS = (3, 5, 8, 10)
LOSSES = 7
Array = NDArray[np.float64]
Random = np.random.Generator


# ---- worlds ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Study:
    """What was measured: (1 + losses) × seeds, the baseline first; where test examples matter, a value for each."""

    values: Array
    truth: float = 0.0  # of each loss, minus the baseline
    examples: Array | None = None  # (1 + losses) × seeds × examples
    resolution: float = 0.0


World = Callable[[Random, int, int], Study]  # of losses and seeds


def shifted(effect: float) -> World:
    """Normal noise; every loss is better by `effect` SDs of the paired difference."""

    def world(rng: Random, losses: int, seeds: int) -> Study:
        values = rng.normal(size=(1 + losses, seeds))
        values[1:] += effect * math.sqrt(2)
        return Study(values, effect * math.sqrt(2))

    return world


def heavy(rng: Random, losses: int, seeds: int) -> Study:
    """Noise with the tails of t₂, whose variance is infinite."""
    return Study(rng.standard_t(2, size=(1 + losses, seeds)))


def discrete(rng: Random, losses: int, seeds: int) -> Study:
    """100 test images, each right with a chance of 97 %."""
    return _of_bits(rng.random((1 + losses, seeds, 100)) < 0.97)


def skewed(rng: Random, losses: int, seeds: int) -> Study:
    """Losses are log-normal with mean 0 and SD 1, the baseline is normal with mean 0 and SD 0.2."""
    values = 0.2 * rng.normal(size=(1 + losses, seeds))
    values[1:] = (rng.lognormal(size=(losses, seeds)) - math.exp(0.5)) / math.sqrt((math.e - 1) * math.e)
    return Study(values)


def crashing(rng: Random, losses: int, seeds: int) -> Study:
    """A tenth of the seeds of the losses lose 5 points; the others make up for it."""
    values = 0.2 * rng.normal(size=(1 + losses, seeds))
    values[1:] += 0.5 - 5 * (rng.random((losses, seeds)) < 0.1)
    return Study(values)


def by_image(rng: Random, losses: int, seeds: int) -> Study:
    """500 test images, of which each loss finds others hard (SD 1); over all images the losses are equal."""
    hard = 2 + 2 * rng.normal(size=500)
    own = rng.normal(size=(1 + losses, 1, 500))
    return _of_bits(hard + own + rng.normal(size=(1 + losses, seeds, 500)) > 0)


def itself(rng: Random, losses: int, seeds: int) -> Study:
    """One loss under two names: 1,000 test images at about 95 %, seeds with an SD of 0.3 points."""
    rates = 0.95 + 0.003 * rng.normal(size=(1 + losses, seeds, 1))
    return _of_bits(rng.random((1 + losses, seeds, 1000)) < rates)


def _of_bits(bits: NDArray[np.bool_]) -> Study:
    examples = 100 * bits.astype(np.float64)
    return Study(examples.mean(axis=-1), examples=examples, resolution=100 / bits.shape[-1])


# ---- what a report makes of them -------------------------------------------------------------------------------------


def verdicts(study: Study, margin: float = 0.0) -> list[Judged]:
    """Every loss against the baseline, as one family."""
    by_seed = [dict(enumerate(row)) for row in study.values.tolist()]
    deviation = stats.largest_deviation(by_seed, by_seed[0])
    found = []
    for place in range(1, len(study.values)):
        noise = 0.0 if study.examples is None else stats.example_error(study.examples[place] - study.examples[0])
        numbers = Contrast(study.values[place], study.values[0], "points", study.resolution, noise, deviation)
        found.append(judged(numbers, stats.LEVEL / (len(study.values) - 1), margin, 1))
    return found


class Rates(NamedTuple):
    """Shares of studies, except `flagged` and `power`: shares of decided verdicts and of losses."""

    wrong: float  # with any wrong better, worse or equivalent
    unflagged: float  # with any such that is not flagged
    flagged: float  # of the wrong verdicts; of all decided ones where none is wrong
    cover: float  # whose intervals all contain the truth
    power: float  # of the losses that are found better


def rates(world: World, seeds: int, draws: int, rng: Random, *, losses: int = LOSSES, margin: float = 0.0) -> Rates:
    """How verdicts fare on studies of a world. Right is the sign of the truth, and equivalent inside the margin."""
    wrong = unflagged = cover = 0
    flags: dict[bool, list[bool]] = {True: [], False: []}  # of verdicts, by whether they are wrong
    better = 0
    for _ in range(draws):
        study = world(rng, losses, seeds)
        found = verdicts(study, margin)
        right = {"equivalent"} if abs(study.truth) < margin else {"better"} if study.truth > 0 else set()
        bad = [one.verdict not in {"undecided"} | right for one in found]
        marked = [ONE_SEED in one.flags for one in found]
        for one, is_bad, mark in zip(found, bad, marked, strict=True):
            if one.verdict != "undecided":
                flags[is_bad].append(mark)
        wrong += any(bad)
        unflagged += any(is_bad and not mark for is_bad, mark in zip(bad, marked, strict=True))
        cover += all(one.low <= study.truth <= one.high for one in found)
        better += sum(one.verdict == "better" for one in found)
    marks = flags[True] or flags[False]
    flagged = sum(marks) / len(marks) if marks else math.nan
    return Rates(wrong / draws, unflagged / draws, flagged, cover / draws, better / draws / losses)


def supported(shape: Sequence[float], seeds: int, draws: int, rng: Random, *, margin: float = 0.25) -> float:
    """How often the claim that a metric increases is supported; `shape` and margin in SDs of a value."""
    count = 0
    for _ in range(draws):
        table = np.asarray(shape) + rng.normal(size=(seeds, 1)) + rng.normal(size=(seeds, len(shape)))
        found = judged_trend(np.arange(len(shape)), table, 1, stats.LEVEL, margin)
        count += found.word == SUPPORTED
    return count / draws


def power_as_planned(
    pilot: int, draws: int, rng: Random, *, losses: int = 1, effect: float = 1.0
) -> tuple[float, float]:
    """The power at both ends of the seeds needed, from undecided pilots; an open upper end counts as enough."""
    level = stats.LEVEL / losses
    low, high = [], []
    for _ in range(draws):
        found = judged(Contrast(rng.normal(effect, 1, pilot), np.zeros(pilot), "points"), level, 0.0, 1)
        if found.seeds_needed is not None:
            low.append(stats.power(effect, found.seeds_needed, level))
            high.append(1.0 if found.seeds_needed_high is None else stats.power(effect, found.seeds_needed_high, level))
    return float(np.mean(low)), float(np.mean(high))


def times_cover(rho: float, draws: int, rng: Random, *, processes: int = 5, rounds: int = 20) -> float:
    """How often the interval of a step-time ratio contains it: AR(1) noise in each loss, and an effect of the process.

    The rounds of a process are averaged, as a report does, and the processes are compared.
    """
    truth, count = 1.1, 0
    for _ in range(draws):
        noise = np.empty((2, processes, rounds))
        noise[..., 0] = rng.normal(size=(2, processes))
        for place in range(1, rounds):
            noise[..., place] = rho * noise[..., place - 1] + math.sqrt(1 - rho**2) * rng.normal(size=(2, processes))
        logs = 0.03 * noise + 0.01 * rng.normal(size=(2, processes, 1))
        means = logs.mean(axis=-1)
        found = judged(Contrast(means[0] + math.log(truth), means[1], "%", logarithms=True), stats.LEVEL, 0.0, -1)
        count += found.low <= 100 * (truth - 1) <= found.high
    return count / draws


# ---- the table -------------------------------------------------------------------------------------------------------


class Row(NamedTuple):
    """Rates at each number of seeds, and the bound to hold: at most so much, or at least; None: told only."""

    truth: str
    measured: str
    rates: Sequence[float]
    most: float | None = None
    least: float | None = None

    def held(self, draws: int) -> bool:
        """Whether no rate is past its bound by more than two standard errors of the simulation."""
        slack = 2 * math.sqrt(0.05 * 0.95 / draws)
        known = [rate for rate in self.rates if not math.isnan(rate)]
        return all(
            (self.most is None or rate <= self.most + slack) and (self.least is None or rate >= self.least - slack)
            for rate in known
        )


EQUAL = {
    "equal, normal": shifted(0.0),
    "equal, heavy-tailed t₂": heavy,
    "equal, 100 test images at 97 %": discrete,
    "equal over all images, loss × image SD 1": by_image,
}
FLAGGED = {
    "equal means, log-normal losses": skewed,
    "equal means, 10 % of seeds lose 5 points": crashing,
}


TRENDS = {
    "trend: falls 1 SD, then rises": ((0, -1, 1, 3), 0.05),
    "trend: rises, falls 2 SD in its last step": ((0, 2, 4, 2), 0.05),
    "trend: rises 3 SD in every step": ((0, 3, 6, 9), None),
}


def rows(draws: int, rng: Random) -> Iterator[Row]:
    """The rows with one rate per number of seeds."""

    def at_each(world: World, losses: int = LOSSES, margin: float = 0.0) -> list[Rates]:
        return [rates(world, seeds, draws, rng, losses=losses, margin=margin) for seeds in SEEDS]

    for name, world in EQUAL.items():
        yield Row(name, "any *better* or *worse*", [one.wrong for one in at_each(world)], most=0.05)
    for name, world in FLAGGED.items():
        found = at_each(world)
        yield Row(name, "any *better* or *worse*", [one.wrong for one in found])
        yield Row(name, "of the wrong ones, flagged", [one.flagged for one in found], least=0.95)
        yield Row(name, "any wrong one that is not flagged", [one.unflagged for one in found], most=0.05)
    alone = at_each(crashing, losses=1)
    name = "the same with one loss instead of seven"
    yield Row(name, "*better* or *worse*", [one.wrong for one in alone])
    yield Row(name, "*better* or *worse*, not flagged", [one.unflagged for one in alone])
    found = at_each(itself, losses=1, margin=0.5)
    yield Row("one loss under two names, margin 0.5", "*better* or *worse*", [one.wrong for one in found], most=0.05)
    found = at_each(shifted(2.0), margin=2 * math.sqrt(2))
    yield Row("seven losses exactly at the margin", "any *equivalent*", [one.wrong for one in found], most=0.05)
    for effect in (1, 2, 4):
        found = at_each(shifted(effect))
        yield Row(f"better by {effect} SD", "found *better*", [one.power for one in found])
        yield Row(f"better by {effect} SD", "of these, flagged", [one.flagged for one in found])
        yield Row(f"better by {effect} SD", "all seven intervals cover", [one.cover for one in found], least=0.95)
    for name, (shape, most) in TRENDS.items():
        yield Row(name, "*supported*", [supported(shape, seeds, draws, rng) for seeds in SEEDS], most=most)


def further(draws: int, rng: Random) -> Iterator[Row]:
    """The rows that do not depend on the number of seeds: pilots, and step times."""
    for losses, name in ((1, "one comparison"), (LOSSES, "a family of seven")):
        for pilot in (5, 8):
            low, high = power_as_planned(pilot, draws, rng, losses=losses)
            where = f"power at the seeds needed, from an undecided pilot of {pilot} (d_z = 1, {name})"
            yield Row(where, "lower end of the range", [low])
            yield Row(where, "upper end", [high], least=0.8)
    for rho in (0.5, 0.9):
        cover = times_cover(rho, draws, rng)
        yield Row(f"step times, AR(1) with ρ = {rho}, five processes", "the interval covers", [cover], least=0.93)


def written(row: Row, draws: int) -> str:
    cells = ["–" if math.isnan(rate) else f"{rate:.3f}".removeprefix("0") for rate in row.rates]
    bound = f"≤ {row.most:g}" if row.most is not None else f"≥ {row.least:g}" if row.least is not None else ""
    return " | ".join(
        ["", row.truth, row.measured, *cells, bound + ("" if row.held(draws) else ", **not held**"), ""]
    ).strip()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--draws", type=int, default=2000, help="studies per number (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    rng = np.random.default_rng(chosen.seed)
    print("| truth and noise | share | " + " | ".join(f"n = {seeds}" for seeds in SEEDS) + " | to hold |")
    print("|---|---|" + "---:|" * len(SEEDS) + "---|")
    for row in rows(chosen.draws, rng):
        print(written(row, chosen.draws), flush=True)
    print("\n| plans and step times | measured | | to hold |\n|---|---|---:|---|")
    for row in further(chosen.draws, rng):
        print(written(row, chosen.draws), flush=True)


if __name__ == "__main__":
    main()
