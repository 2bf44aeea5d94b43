"""Results against FC width and number of classes; metrics of unseen classes and geometry at every point."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pandas as pd

from lossbench.analysis.results import Results
from lossbench.report import words
from lossbench.report.blocks import Anchor, Block, Prose, Section, Table
from lossbench.report.sections.rows import Row, anchor, at, by_experiment, compared, finished, per_experiment
from lossbench.tasks import TASKS

MOST_CLASSES = 10  # with a column of angles each


def width(results: Results) -> Section:
    """The headline metric and memory against M."""
    blocks = _along(results, "width", f"{results.headline.title} and FC memory against the width M")
    return Section("width", "FC width", tuple(blocks) or (Prose("No experiment varies the width."),))


def classes(results: Results) -> Section:
    """The headline metric against the number of classes."""
    blocks = _along(results, "classes", f"{results.headline.title} against the number of classes C")
    return Section("classes", "Classes", tuple(blocks) or (Prose("No experiment varies the number of classes."),))


def _along(results: Results, axis: str, what: str) -> list[Block]:
    """One row per width and number of classes: the baseline and the best other loss."""
    baseline = results.info.baseline
    headline = results.headline
    deltas, digits = compared(results, headline.name), words.digits_of(headline.unit)
    blocks: list[Block] = []
    unit = words.column(headline).removeprefix(headline.title)
    for experiment, frame in by_experiment(finished(results)):
        if frame[axis].nunique() < 2:
            continue
        rows, anchors = [], []
        for (k, m), group in frame.groupby(["classes", "width"], sort=True):
            base, others = group[group["loss"] == baseline], group[group["loss"] != baseline]
            best = others.loc[(headline.sign * others["value"]).idxmax()] if others["value"].notna().any() else None
            found = None if best is None else deltas.get(at(best))
            first = group.iloc[0]
            shown = {
                "C": str(k),
                "M": words.width({"width": m, "minimum": first["minimum"]}),
                "FC layer": words.size(first["bytes_fc"]),
                f"{baseline}{unit}": words.number(base["value"].iloc[0], digits) if len(base) else words.DASH,
                "95 % interval": _interval(base, digits),
                "best other loss": words.DASH if best is None else str(best["loss"]),
                f"its {words.column(headline)}": words.DASH if best is None else words.number(best["value"], digits),
                words.delta_column(headline, "95 %"): words.difference(found, unit=False) if found else words.DASH,
                "verdict": found["verdict"] if found else words.DASH,
            }
            rows.append(shown)
            anchors.append(([anchor(best)] if best is not None else []) + [anchor(row) for _, row in base.iterrows()])
        caption = f"{experiment}: {what}. The best loss is chosen by its mean, so its Δ is biased upwards."
        left = ["best other loss", "verdict"]
        blocks.append(Table.of(rows, left=left, caption=caption, anchors=anchors, experiment=experiment))
    return blocks


def _interval(base: pd.DataFrame, digits: int) -> str:
    return words.interval(base["low"].iloc[0], base["high"].iloc[0], digits) if len(base) else words.DASH


def verification(results: Results) -> Section:
    """Verification of pairs of unseen classes: the metrics that LFW papers report, with verdicts."""
    caption = (
        f"means over seeds in percent with 95 % intervals over pairs, and paired differences from "
        f"{results.info.baseline} with 95 % intervals over seeds. The interval over pairs is that of one network, "
        "averaged over seeds. TAR: share of same-class pairs that are accepted at the given false accept rate (FAR); "
        "EER: error rate at which both errors are equal; AUC: area under the ROC curve. Accuracy, at the threshold of "
        "the other folds, is in the tables above."
    )
    verified = _of_task(results, "verification", TASKS["verification"].headline, lambda frame: caption)

    def identified(frame: pd.DataFrame) -> str:
        enrolled, probes, single, foreign = _counted(results, frame, ("enrolled", "probes", "single", "nonmated"))
        return (
            f"identification on the same classes, means over seeds in percent. {enrolled} classes with two or more "
            f"images are enrolled with the mean of the first half of their images; the other {probes} images are "
            "probes. Rank-1: share of probes whose nearest class is their own. TPIR: share of probes that are accepted "
            "and find their class in a gallery of half of the classes, at the given share of accepted probes whose "
            f"class is not in the gallery (FPIR, {foreign} searches; {single} classes with one image are only searched "
            "for)."
        )

    names = ("rank@1", "tpir@0.1", "tpir@0.01")
    return Section("verification", "Verification", (*verified, *_of_task(results, "verification", names, identified)))


def retrieval(results: Results) -> Section:
    """Retrieval of images of unseen classes: the metrics of papers on metric learning, with verdicts."""

    def caption(frame: pd.DataFrame) -> str:
        queries, gallery, alone = _counted(results, frame, ("queries", "gallery", "alone"))
        return (
            f"means over seeds in percent, paired differences from {results.info.baseline} with 95 % intervals over "
            f"seeds. {queries} test images are queries, each against the {gallery} other test images; {alone} images "
            "without another of their class are no queries, but stay in the gallery. Recall@k: share of queries with "
            "an image of their class among the k nearest by cosine; MAP@R and R-precision: over the R nearest, R being "
            "the number of other images of the query's class."
        )

    return Section(
        "retrieval", "Retrieval", tuple(_of_task(results, "retrieval", TASKS["retrieval"].headline, caption))
    )


def _counted(results: Results, frame: pd.DataFrame, names: Sequence[str]) -> list[str]:
    """What the records of an experiment counted under these names; a dash for none."""
    mine = results.trained["experiment"] == frame["experiment"].iloc[0]
    counts = list(results.trained["counts"][mine])
    return [words.span([found[name] for found in counts if name in found]) for name in names]


def _of_task(results: Results, task: str, names: Sequence[str], caption: Callable[[pd.DataFrame], str]) -> list[Block]:
    """Metrics of a task and their differences from the baseline, one row per loss and point that has them."""
    titles = {name: results.metrics[name].title for name in names if name in results.metrics}
    found = {metric: compared(results, metric) for metric in titles}

    def write(row: Row) -> dict[str, str]:
        shown = {"loss": row["loss"], "M": words.width(row)}
        for metric, heading in titles.items():
            mine = found[metric].get(at(row))
            pairs = results.pair_intervals.get((*at(row), metric))
            shown[heading] = words.number(row[metric]) + (f" {words.interval(*pairs)}" if pairs else "")
            shown[f"Δ {heading}"] = f"{words.difference(mine, unit=False)} {mine['verdict']}" if mine else words.DASH
        return shown

    main = results.main
    if not len(main) or main[list(titles)].isna().all(axis=None):
        return []
    return per_experiment(main[main["task"] == task], write, caption, left=["loss"])


def geometry(results: Results) -> Section:
    """Angles and norms of features and class weights."""

    def write(row: Row) -> dict[str, str]:
        return {
            "loss": row["loss"],
            "M": words.width(row),
            "θ̄ train°": words.number(row["angle_train"], 1),
            "θ̄ test°": words.number(row["angle_test"], 1),
            "weight angle, mean°": words.number(row["weight_angle"], 1),
            "smallest°": words.number(row["weight_angle_least"], 1),
            "simplex distance": words.number(row["simplex_distance"], 3),
            "norm: train / test": f"{words.number(row['norm_train'], 1)} / {words.number(row['norm_test'], 1)}",
        }

    caption = (
        "θ̄: mean angle between a feature and the weight of its class; weight angle: between two class weights, mean "
        "and smallest; simplex distance: root mean square distance of their cosines from −1/(C−1); norm: mean feature "
        "norm."
    )
    tables = per_experiment(finished(results), write, caption, left=["loss"])
    by_class = dict(by_experiment(results.class_angles))
    blocks: list[Block] = []
    for table in tables:
        blocks.append(table)
        if isinstance(table, Table) and table.experiment in by_class:
            blocks.append(_class_angles(table.experiment, by_class[table.experiment]))
    return Section("geometry", "Geometry", tuple(blocks) or (Prose("No angles were measured."),))


def _class_angles(experiment: str, frame: pd.DataFrame) -> Table:
    """The mean angle of each class, train and test; quartiles if there are many classes."""
    wide = frame["classes"].max() > MOST_CLASSES
    quartiles = ["minimum", "25 %", "median", "75 %", "maximum"]
    rows: list[dict[str, str]] = []
    anchors = []
    for (point, label), group in frame.groupby(["point", "loss"], sort=False):
        sides: dict[str, dict[int, float]] = {"train": {}, "test": {}}
        for split, number, angle in zip(group["split"], group["class"], group["angle"], strict=True):
            sides[split][number] = angle
        shown = {"loss": str(label), "C": str(point["classes"]), "M": str(point["width"])}
        names = quartiles if wide else [str(number) for number in range(group["class"].max() + 1)]
        for index, name in enumerate(names):  # the number of a quartile, or of a class
            pair = []
            for side in sides.values():
                value = np.quantile(list(side.values()), index / 4) if wide and side else side.get(index)
                pair.append(words.number(value, 1))
            shown[name] = " / ".join(pair)
        rows.append(shown)
        anchors.append([Anchor(point, str(label))])
    columns = list(dict.fromkeys(key for row in rows for key in row))
    rows = [{key: row.get(key, "") for key in columns} for row in rows]
    caption = f"{experiment}: mean angle θ̄ in degrees {'quartiles over classes' if wide else 'by class'}, train / test."
    return Table.of(rows, left=["loss"], caption=caption, anchors=anchors, experiment=experiment)
