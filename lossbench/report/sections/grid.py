"""Sections that follow the grid: across datasets, FC width, classes, verification, geometry."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from lossbench import stats
from lossbench.analysis import ranks
from lossbench.analysis.points import POINT, place
from lossbench.analysis.results import Results
from lossbench.plugins.metrics import METRICS
from lossbench.report import words
from lossbench.report.blocks import Block, Place, Prose, Section, Table

VERIFICATION = {name: METRICS[name].title for name in ("tar@0.01", "eer", "auc")}
MOST_CLASSES = 10  # whose angles have a column each


def across_datasets(results: Results) -> Section:
    """Mean ranks with Friedman's test and the critical difference; N is the number of datasets."""
    title = "Across datasets"
    found = results.ranking
    if found is None:
        names = sorted({ranks.identity(point["dataset"]) for point in results.points})
        why = f"only {names[0]}" if len(names) == 1 else "fewer than two datasets with two losses in common"
        return Section("datasets", title, (Prose(f"Nothing to rank: {why}."),))
    n, k = found.table.means.shape
    pairs = {pair.a: pair for pair in found.pairs}
    rows = []
    for index in np.argsort(found.test.ranks, kind="stable"):
        loss = found.table.losses[index]
        pair = pairs.get(loss)
        row = {"loss": loss, "mean rank": words.number(found.test.ranks[index])}
        row |= {dataset: words.number(found.table.means[place_, index]) for place_, dataset in _counted(found)}
        row[f"p against {results.outline.baseline} (Wilcoxon, Holm)"] = words.p_value(pair and pair.p_holm)
        row["rank effect"] = words.number(pair and pair.effect)
        rows.append(row)
    caption = (
        f"Accuracy in percent, averaged over seeds and points inside each dataset; ranks over N = {n} datasets, 1 the "
        "best. Rank effect: from −1 (always behind the baseline) to 1 (always ahead)."
    )
    caption += " Where an experiment was tuned, the tuned losses are ranked." if results.outline.tuning else ""
    blocks: list[Block] = [Table.of(rows, left=["loss"], caption=caption)]
    if not found.enough:
        text = f"N = {n} datasets: below {stats.FEWEST_DATASETS} nothing is tested across them, however many seeds."
        return Section("datasets", title, (*blocks, Prose(text)))
    differ = "differ" if found.differ else "are not shown to differ"
    if k > 2:
        text = (
            f"Over N = {n} datasets the ranks of {k} losses {differ}: Friedman χ² = {found.test.chi2:.2f}, "
            f"Iman–Davenport F = {found.test.f:.2f}, p {_equals(found.test.p)}."
        )
        if found.differ:
            apart = f"{found.difference:.2f} or more apart (Nemenyi, level {stats.LEVEL})"
            text += f" Two mean ranks differ where they are {apart}."
        blocks.append(Prose(text))
        groups = "; ".join(", ".join(group) for group in found.groups)
        blocks.append(Prose(f"Groups whose ranks do not differ: {groups or 'none'}."))
    if silent := next((pair.test.reason for pair in found.pairs if pair.test.reason), ""):
        blocks.append(Prose(f"Wilcoxon's test against {results.outline.baseline} is not printed: {silent}."))
    return Section("datasets", title, tuple(blocks))


def tuning(results: Results) -> Section:
    """Every loss as the suite writes it and as it was tuned, with the budget and what was chosen."""
    budget = results.outline.tuning
    if budget is None:
        return Section("tuning", "Tuning", ())
    several = f"{budget.seeds} seeds each, the first of the experiment" if budget.seeds > 1 else "one seed each"
    spent = (
        f"Every loss has {budget.trials} trials at every point ({several}): the first as the suite writes it, "
        f"the others at random points of its ranges. {100 * budget.validation:g} % of the training images are held "
        "out, and the trial with the best mean accuracy on these is chosen; no trial sees the test set. The chosen "
        "setting is then trained on all training images."
    )
    varied = {loss: [f"{name} {axis}" for name, axis in axes.items()] for loss, axes in budget.ranges.items()}
    listed = "; ".join(f"{loss}: {', '.join(axes) or 'nothing of its own'}" for loss, axes in varied.items())
    shared = f"the learning rate of every loss {budget.lr}; " if budget.lr else ""
    blocks: list[Block] = [Prose(spent), Prose(f"Ranges: {shared}{listed}.")]
    for experiment, frame in by_experiment(results.tuning):
        found = frame.to_dict("records")
        rows = with_classes([_tuned_row(row, budget.trials, bool(budget.lr)) for row in found], frame)
        caption = (
            f"{experiment}: accuracy on the test set in percent with 95 % intervals, of each loss as it is written and "
            "as it was tuned; Δ: tuned minus default, paired by seed. Validation: the chosen trial's accuracy on the "
            "held-out images, which is flattered, as the best of several."
        )
        there = budget.experiments[experiment]
        places = [(Place.of(row), Place.of({**row, "experiment": there})) for row in found]
        left = ["loss", "chosen", "trials"]
        blocks.append(Table.of(rows, left=left, caption=caption, places=places, experiment=experiment))
    few = results.tuning[(results.tuning["trials"] < budget.trials)]
    if len(few):
        names = ", ".join(
            f"{loss} ({count})" for loss, count in dict(zip(few["loss"], few["trials"], strict=True)).items()
        )
        blocks.append(Prose(f"Losses with fewer trials, as their ranges have no more different settings: {names}."))
    return Section("tuning", "Tuning", tuple(blocks))


def _tuned_row(row: Mapping[str, Any], budget: int, with_lr: bool) -> dict[str, str]:
    ended = [f"{row['trials']} of {budget}" if row["trials"] < budget else f"{row['trials']}"]
    ended += [f"{row['failed']} failed"] if row["failed"] else []
    ended += [f"{row['left']} not run"] if row["left"] else []
    decided = words.finite(row["trial"])
    parts = [row["chosen"], f"lr={row['lr']:g}" if decided and with_lr else ""]
    setting = ", ".join(part for part in parts if part)
    as_written = " (as written)" if decided and row["trial"] == 1 else ""
    return {
        "loss": row["loss"],
        "M": str(row["width"]),
        "default": f"{words.number(row['default'])} {words.interval(row['default_low'], row['default_high'])}",
        "tuned": f"{words.number(row['tuned'])} {words.interval(row['tuned_low'], row['tuned_high'])}",
        "Δ points [95 % interval]": words.difference(row, unit=False),
        "n": str(row["n"]),
        "chosen": (f"{setting}{as_written}" if decided else "").strip() or words.DASH,
        "trials": ", ".join(ended),
        "validation": words.number(row["validation"]),
    }


def _counted(found: ranks.Ranking) -> Iterable[tuple[int, str]]:
    return enumerate(found.table.datasets)


def _equals(p: float) -> str:
    shown = words.p_value(p)
    return shown if shown.startswith("<") else f"= {shown}"


def width(results: Results) -> Section:
    """Accuracy and memory against M."""
    blocks: list[Block] = []
    for name in dict.fromkeys(cell.experiment for cell in results.cells):
        frame = _finished(results, name)
        if len(frame) and frame["width"].nunique() > 1:
            blocks.append(_along(results, frame, name, "accuracy and FC memory against the width M"))
    nothing = Prose("No experiment varies the width.")
    return Section("width", "FC width", tuple(blocks) or (nothing,))


def classes(results: Results) -> Section:
    """Accuracy against the number of classes."""
    blocks: list[Block] = []
    for name in dict.fromkeys(cell.experiment for cell in results.cells):
        frame = _finished(results, name)
        if len(frame) and frame["classes"].nunique() > 1:
            blocks.append(_along(results, frame, name, "accuracy against the number of classes C"))
    return Section("classes", "Classes", tuple(blocks) or (Prose("No experiment varies the number of classes."),))


def _finished(results: Results, experiment: str) -> pd.DataFrame:
    main = results.main
    return main[(main["experiment"] == experiment) & (main["n"] > 0)] if len(main) else main


def _along(results: Results, frame: pd.DataFrame, experiment: str, what: str) -> Table:
    """A row a point: what the layer holds, the baseline, and the loss that does best there."""
    baseline = results.outline.baseline
    compared = {
        place(row, row["loss"]): row
        for row in results.comparisons.to_dict("records")
        if row["metric"] == "accuracy" and row["experiment"] == experiment
    }
    rows = []
    for (k, m), group in frame.groupby(["classes", "width"], sort=True):
        base = group[group["loss"] == baseline]
        others = group[group["loss"] != baseline]
        best = others.loc[others["accuracy"].idxmax()] if others["accuracy"].notna().any() else None
        found = None if best is None else compared.get(place(best, best["loss"]))
        first = group.iloc[0]
        rows.append(
            {
                "C": str(k),
                "M": words.width({"width": m, "minimum": first["minimum"]}),
                "FC layer": words.size(first["bytes_fc"]),
                f"{baseline}, %": words.number(base["accuracy"].iloc[0]) if len(base) else words.DASH,
                "95 % interval": words.interval(base["low"].iloc[0], base["high"].iloc[0]) if len(base) else words.DASH,
                "best other loss": words.DASH if best is None else str(best["loss"]),
                "its accuracy, %": words.DASH if best is None else words.number(best["accuracy"]),
                "Δ points [95 %]": words.difference(found, unit=False) if found else words.DASH,
                "verdict": found["verdict"] if found else words.DASH,
            }
        )
    caption = f"{experiment}: {what}. The best is picked by its mean, so its Δ is somewhat flattered."
    return Table.of(rows, left=["best other loss", "verdict"], caption=caption, experiment=experiment)


def verification(results: Results) -> Section:
    """Pairs of unseen classes told apart: what LFW papers print, with the verdict on each figure."""
    compared = {
        (*place(row, row["loss"]), row["metric"]): row
        for row in results.comparisons.to_dict("records")
        if row["metric"] in VERIFICATION
    }
    blocks: list[Block] = []
    main = results.main
    verified = main[main["task"] == "verification"] if len(main) else main
    for experiment, frame in by_experiment(verified):
        rows = []
        for row in frame.to_dict("records"):
            shown = {"loss": row["loss"], "M": words.width(row)}
            for metric, heading in VERIFICATION.items():
                found = compared.get((*place(row, row["loss"]), metric))
                shown[heading] = words.number(row[metric])
                shown[f"Δ {heading}"] = (
                    f"{words.difference(found, unit=False)} {found['verdict']}" if found else words.DASH
                )
            rows.append(shown)
        caption = (
            f"{experiment}: means over seeds in percent, paired differences from {results.outline.baseline} with 95 % "
            "intervals. TAR: pairs of one class accepted at the given rate of false accepts; EER: where both errors "
            "are equal; AUC: area under the ROC. Accuracy, by the threshold of the other folds, is in the tables above."
        )
        blocks.append(Table.of(rows, left=["loss"], caption=caption, experiment=experiment))
    return Section("verification", "Verification", tuple(blocks))


def geometry(results: Results) -> Section:
    """Where features and class weights stand."""
    blocks: list[Block] = []
    for experiment, frame in by_experiment(results.main):
        rows = [
            {
                "loss": row["loss"],
                "M": words.width(row),
                "θ̄ train°": words.number(row["angle_train"], 1),
                "θ̄ test°": words.number(row["angle_test"], 1),
                "between weights°": words.number(row["weight_angle"], 1),
                "least°": words.number(row["weight_angle_least"], 1),
                "from the simplex": words.number(row["simplex_distance"], 3),
                "norm: train / test": f"{words.number(row['norm_train'], 1)} / {words.number(row['norm_test'], 1)}",
            }
            for row in frame.to_dict("records")
            if row["n"]
        ]
        if rows:
            rows = with_classes(rows, frame[frame["n"] > 0])
            caption = (
                f"{experiment}: θ̄ is the mean angle of a feature to its class's weight; then the mean and the least "
                "angle between two class weights, the root mean square distance of their cosines from −1/(C−1), and "
                "the mean length of a feature."
            )
            blocks.append(Table.of(rows, left=["loss"], caption=caption, experiment=experiment))
        if by_class := _class_angles(results, experiment):
            blocks.append(by_class)
    return Section("geometry", "Geometry", tuple(blocks) or (Prose("No angles were measured."),))


def _class_angles(results: Results, experiment: str) -> Table | None:
    """The mean angle of each class, train and test; of many classes their quartiles."""
    frame = results.class_angles[results.class_angles["experiment"] == experiment]
    if frame.empty:
        return None
    wide = frame["classes"].max() > MOST_CLASSES
    quartiles = ["least", "quarter", "half", "three quarters", "most"]
    rows: list[dict[str, str]] = []
    for (*_, k, m, label), group in frame.groupby([*POINT, "loss"], sort=False):
        sides: dict[str, dict[int, float]] = {"train": {}, "test": {}}
        for split, number, angle in zip(group["split"], group["class"], group["angle"], strict=True):
            sides[split][number] = angle
        shown = {"loss": str(label), "C": str(k), "M": str(m)}
        names = quartiles if wide else [str(number) for number in range(group["class"].max() + 1)]
        for place_, name in enumerate(names):  # the number of a quartile, or of a class
            pair = []
            for side in sides.values():
                value = np.quantile(list(side.values()), place_ / 4) if wide and side else side.get(place_)
                pair.append(words.number(value, 1))
            shown[name] = " / ".join(pair)
        rows.append(shown)
    every = list(dict.fromkeys(key for row in rows for key in row))
    rows = [{key: row.get(key, "") for key in every} for row in rows]
    what = "quartiles over classes" if wide else "by class"
    caption = f"{experiment}: mean angle θ̄ in degrees {what}, train / test."
    return Table.of(rows, left=["loss"], caption=caption, experiment=experiment)


def with_classes(rows: Sequence[dict[str, str]], frame: pd.DataFrame) -> list[dict[str, str]]:
    """The rows of a table, told apart by their number of classes where it varies; a row of `frame` for each."""
    if frame["classes"].nunique() < 2:
        return list(rows)
    return [{"C": str(k), **row} for k, row in zip(frame["classes"], rows, strict=True)]


def by_experiment(frame: pd.DataFrame) -> Iterable[tuple[str, pd.DataFrame]]:
    """The rows of each experiment, in the order of the plan."""
    return [(str(name), group) for name, group in frame.groupby("experiment", sort=False)] if len(frame) else []
