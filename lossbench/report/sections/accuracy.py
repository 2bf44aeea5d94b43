"""The headline metric: means, comparisons with the baseline, tuned settings, ranks across datasets."""

from __future__ import annotations

import numpy as np

from lossbench import stats
from lossbench.analysis.ranks import Ranking
from lossbench.analysis.results import Results
from lossbench.core.point import SHORT
from lossbench.report import words
from lossbench.report.blocks import Anchor, Block, Prose, Section, Table
from lossbench.report.sections.rows import Row, anchor, at, compared, per_experiment


def accuracy(results: Results) -> Section:
    """The mean of every loss at every point."""
    headline = results.headline
    digits = words.digits_of(headline.unit)

    def write(row: Row) -> dict[str, str]:
        return {
            "loss": row["loss"],
            words.column(headline): words.number(row["value"], digits),
            "95 % interval": words.interval(row["low"], row["high"], digits),
            "SE: seeds / test set": f"{words.number(row['seed_se'], digits)} / {words.number(row['test_se'], digits)}",
            "median seed": words.number(row["median"], digits),
            "worst seed": words.number(row["worst"], digits),
            "n": str(row["n"]),
            "failed": str(row["failures"]),
            "flags": row["flags"],
        }

    caption = f"test {headline.title}, mean over seeds with its 95 % interval."
    tables = per_experiment(results.main, write, caption, left=["loss", "flags"])
    return Section("accuracy", words.capital(headline.title), tuple(tables), appendix=True)


def comparisons(results: Results) -> Section:
    """Paired differences from the baseline with their verdicts."""
    baseline, headline = results.info.baseline, results.headline
    digits = words.digits_of(headline.unit)
    found = compared(results, headline.name)

    def write(row: Row) -> dict[str, str]:
        mine = found.get(at(row), {"delta": None, "low": None, "unit": ""})
        won = f"{mine['wins']:.0f}/{mine['n']}" if mine.get("n") and words.finite(mine.get("wins")) else words.DASH
        return {
            "loss": row["loss"],
            words.column(headline): words.number(row["value"], digits),
            words.delta_column(headline): words.difference(mine, unit=False),
            "verdict": "baseline" if row["loss"] == baseline else mine.get("verdict", "not compared"),
            "flags": mine.get("flags", ""),
            "won": won,
            "median seed": words.number(mine.get("median"), digits),
            "worst seed": words.number(mine.get("worst"), digits),
            "SE: seeds / test set": f"{words.number(mine.get('seed_se'))} / {words.number(mine.get('test_se'))}",
            "p": words.p_value(mine.get("p_adjusted")),
            "seed correlation": words.number(mine.get("correlation")),
            "seeds needed": words.seeds_needed(mine),
        }

    def anchors(row: Row) -> list[Anchor]:
        return list(dict.fromkeys([anchor(row), anchor(row, baseline)]))

    caption = (
        f"each loss minus {baseline}, paired by seed, with simultaneous 95 % intervals; won: seeds on which it is "
        "better; p: adjusted over the family; seeds needed: for 80 % power, from these estimates and their uncertainty."
    )
    tables = per_experiment(results.main, write, caption, left=["loss", "verdict", "flags"], anchors=anchors)
    return Section("comparisons", f"Against {baseline}", tuple(tables), appendix=True)


def tuning(results: Results) -> Section:
    """Every loss with its defaults and tuned, with the budget and the chosen settings."""
    budget = results.info.tuning
    if budget is None:
        return Section("tuning", "Tuning", ())
    headline = results.headline
    digits = words.digits_of(headline.unit)
    seeds = f"{budget.seeds} seeds each, the first of the experiment" if budget.seeds > 1 else "one seed each"
    tasks = {cell.task for cell in results.cells if cell.kind == "trial"}
    held_out = "images" if tasks <= {"classification"} else "images (in verification and retrieval, of the classes)"
    spent = (
        f"Every loss gets {budget.trials} trials per point ({seeds}): first its default, then quasi-random points "
        f"of its ranges. {100 * budget.validation:g} % of the training {held_out} are held out, and the trial with the "
        f"best mean {headline.title} on them is chosen; no trial uses the test set. The chosen setting is then "
        "trained on all training images."
    )
    varied = {loss: [f"{name} {axis}" for name, axis in axes.items()] for loss, axes in budget.ranges.items()}
    listed = "; ".join(f"{loss}: {', '.join(axes) or 'no options'}" for loss, axes in varied.items())
    words_of = {"lr": "learning rate"}
    shared = "".join(f"{words_of.get(key, key)} of every loss {axis}; " for key, axis in budget.schedule.items())
    caption = (
        f"test {words.measured(headline)} with 95 % intervals, with default and with tuned settings; Δ: tuned minus "
        f"default, paired by seed. Validation: {headline.title} of the chosen trial on the held-out images, which "
        "is optimistic, as it is the best of several trials."
    )

    def write(row: Row) -> dict[str, str]:
        ended = [f"{row['trials']} of {budget.trials}" if row["trials"] < budget.trials else f"{row['trials']}"]
        ended += [f"{row[key]} {word}" for key, word in (("failed", "did not finish"), ("left", "not run")) if row[key]]
        decided = words.finite(row["trial"])
        parts = [row["chosen"], f"lr={row['lr']:g}" if decided and "lr" in budget.schedule else ""]
        setting = ", ".join(part for part in parts if part) + (" (default)" if row["trial"] == 1 else "")
        return {
            "loss": row["loss"],
            **{side: _with_interval(row, side, digits) for side in ("default", "tuned")},
            words.delta_column(headline): words.difference(row, unit=False),
            "n": str(row["n"]),
            "chosen": (setting if decided else "").strip() or words.DASH,
            "trials": ", ".join(ended),
            "validation": words.number(row["validation"], digits),
        }

    def anchors(row: Row) -> list[Anchor]:
        twin = row["point"].of(budget.experiments[row["experiment"]])
        return [anchor(row), Anchor(twin, row["loss"])]

    blocks: list[Block] = [Prose(spent), Prose(f"Ranges: {shared}{listed}.")]
    left = ["loss", "chosen", "trials"]
    blocks += per_experiment(results.tuning, write, caption, left=left, anchors=anchors)
    few = results.tuning[results.tuning["trials"] < budget.trials]
    if len(few):
        counts = dict(zip(few["loss"], few["trials"], strict=True))
        names = ", ".join(f"{loss} ({count})" for loss, count in counts.items())
        blocks.append(Prose(f"Losses with fewer trials (their ranges have no further distinct settings): {names}."))
    return Section("tuning", "Tuning", tuple(blocks))


def _with_interval(row: Row, name: str, digits: int) -> str:
    return f"{words.number(row[name], digits)} {words.interval(row[f'{name}_low'], row[f'{name}_high'], digits)}"


def across_datasets(results: Results) -> Section:
    """Mean ranks with Friedman's test and the critical difference; N is the number of datasets."""
    blocks = [block for found in results.rankings for block in _ranked(results, found)]
    return Section("datasets", "Across datasets", tuple(blocks))


def _ranked(results: Results, found: Ranking) -> list[Block]:
    """One ranking: its table, and the tests in words."""
    baseline, n = results.info.baseline, len(found.table.datasets)
    headline = results.headline
    digits = words.digits_of(headline.unit)
    pairs = {pair.a: pair for pair in found.pairs}
    rows = []
    for index in np.argsort(found.test.ranks, kind="stable"):
        loss = found.table.losses[index]
        pair = pairs.get(loss)
        row = {"loss": loss, "mean rank": words.number(found.test.ranks[index])}
        means = [words.number(mean, digits) for mean in found.table.means[:, index]]
        row |= dict(zip(found.table.datasets, means, strict=True))
        if any(words.finite(other.p_holm) for other in found.pairs):
            row[f"p against {baseline} (Wilcoxon, Holm)"] = words.p_value(pair and pair.p_holm)
        row["rank effect"] = words.number(pair and pair.effect)
        rows.append(row)
    what, over = words.measured(headline), ", ".join(SHORT.get(name, name) for name in found.averaged)
    caption = (
        (f"{words.capital(found.name)}: {what}" if found.name else words.capital(what))
        + f", averaged over seeds{f' and points (which differ in {over})' if over else ''} within each dataset; ranks "
        f"over N = {n} datasets, 1 is best. Rank effect: the rank-biserial correlation of the paired differences, "
        "from −1 (always behind the baseline) to 1 (always ahead)."
    )
    caption += " If an experiment was tuned, the tuned losses are ranked." if results.info.tuning else ""
    return [Table.of(rows, left=["loss"], caption=caption), *map(Prose, _rank_tests(found, baseline))]


def _rank_tests(found: Ranking, baseline: str) -> list[str]:
    n, k = found.table.means.shape
    if not found.enough:
        return [f"N = {n} datasets: a test needs at least {stats.FEWEST_DATASETS}, regardless of the number of seeds."]
    texts = []
    if k > 2:
        text = (
            f"Over N = {n} datasets the ranks of {k} losses {'differ' if found.differ else 'do not differ'} "
            f"significantly: Friedman χ² = {found.test.chi2:.2f}, Iman–Davenport F = {found.test.f:.2f}, "
            f"p {words.equals(found.test.p)}."
        )
        if found.differ:
            apart = f"at least {found.difference:.2f} apart (Nemenyi, level {stats.LEVEL})"
            text += f" Two mean ranks differ significantly if they are {apart}."
        groups = "; ".join(", ".join(group) for group in found.groups)
        texts = [text, f"Groups whose ranks do not differ significantly: {groups or 'none'}."]
    if silent := next((pair.test.reason for pair in found.pairs if pair.test.reason), ""):
        texts.append(f"Wilcoxon's test against {baseline} is not shown: {silent}.")
    return texts
