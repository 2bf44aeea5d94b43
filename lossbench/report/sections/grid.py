"""Results along the axes of the grid; metrics of unseen classes and geometry at every point."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pandas as pd

from lossbench.analysis import series
from lossbench.analysis.measured import LossAt
from lossbench.analysis.results import Results
from lossbench.analysis.series import Along
from lossbench.core.model import GEOMETRY
from lossbench.report import words
from lossbench.report.blocks import Block, Section, Table
from lossbench.report.sections.rows import Row, anchor, at, by_experiment, compared, finished, per_experiment, table
from lossbench.tasks import TASKS

MOST_CLASSES = 10  # with a column of angles each


def axes(results: Results) -> Section:
    """The figures of metric and gain along each numeric axis that an experiment varies."""
    return Section("axes", "Along each axis", ())


def axis_tables(results: Results) -> Section:
    """The metric and the gain over the baseline along each numeric axis."""
    deltas = compared(results, results.headline.name)
    blocks = [_along(results, line, deltas) for name in results.experiments for line in series.followed(results, name)]
    return Section("axis-tables", "Values along each axis", tuple(blocks), appendix=True)


def _along(results: Results, along: Along, deltas: Mapping[LossAt, Row]) -> Table:
    """One row per value of the axis, in each panel: the baseline and the best other loss."""
    baseline, headline = results.info.baseline, results.headline
    main = results.main_at
    digits, unit = words.digits_of(headline.unit), words.column(headline).removeprefix(headline.title)
    found, rows, anchors = [], [], []
    for point in dict.fromkeys(point for line in along.lines for point in line.points):
        here = main[point]
        base = here.get(baseline)
        others = [row for loss, row in here.items() if loss != baseline and words.finite(row["value"])]
        best = max(others, key=lambda row: headline.sign * row["value"], default=None)
        mine = None if best is None else deltas.get(at(best))
        first = next(iter(here.values()))
        found.append(first)
        rows.append(
            {
                **({"FC layer": words.size(first["bytes_fc"])} if along.axis == "width" else {}),
                f"{baseline}{unit}": words.number(base["value"], digits) if base else words.DASH,
                "95 % interval": words.interval(base["low"], base["high"], digits) if base else words.DASH,
                "best other loss": words.DASH if best is None else str(best["loss"]),
                f"its {words.column(headline)}": words.DASH if best is None else words.number(best["value"], digits),
                words.delta_column(headline): words.difference(mine, unit=False) if mine else words.DASH,
                "verdict": mine["verdict"] if mine else words.DASH,
            }
        )
        anchors.append([anchor(row) for row in (best, base) if row])
    caption = f"{headline.title} along {along.axis}. The best loss is chosen by its mean, so its Δ is biased upwards."
    left = ["best other loss", "verdict"]
    return table(found, rows, caption, left=left, anchors=anchors, experiment=along.experiment)


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
            f"class is not in the gallery (FPIR, {foreign} searches; {single} classes with one image serve only as "
            "probes)."
        )

    names = ("rank@1", "tpir@0.1", "tpir@0.01")
    found = (*verified, *_of_task(results, "verification", names, identified))
    return Section("verification", "Verification", found, appendix=True)


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
        "retrieval",
        "Retrieval",
        tuple(_of_task(results, "retrieval", TASKS["retrieval"].headline, caption)),
        appendix=True,
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
        shown = {"loss": row["loss"]}
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
    frame = finished(results)
    frame = frame[frame[[*GEOMETRY, "angle_train", "angle_test"]].notna().any(axis=1)] if len(frame) else frame
    tables = per_experiment(frame, write, caption, left=["loss"])
    by_class = dict(by_experiment(results.class_angles))
    blocks: list[Block] = []
    for each in tables:
        blocks.append(each)
        if isinstance(each, Table) and each.experiment in by_class:
            blocks.append(_class_angles(each.experiment, by_class[each.experiment]))
    return Section("geometry", "Geometry", tuple(blocks), appendix=True)


def _class_angles(experiment: str, frame: pd.DataFrame) -> Table:
    """The mean angle of each class, train and test; quartiles if there are many classes."""
    wide = frame["classes"].max() > MOST_CLASSES
    quartiles = ["minimum", "25 %", "median", "75 %", "maximum"]
    rows: list[dict[str, str]] = []
    found = []
    by_loss: dict[LossAt, dict[str, dict[int, float]]] = {}
    columns = (frame[name].to_numpy().tolist() for name in ("point", "loss", "split", "class", "angle"))
    for point, label, split, number, angle in zip(*columns, strict=True):
        by_loss.setdefault((point, label), {"train": {}, "test": {}})[split][number] = angle
    for (point, label), sides in by_loss.items():
        shown = {"loss": label}
        most = max(number for side in sides.values() for number in side)
        names = quartiles if wide else [str(number) for number in range(most + 1)]
        for index, name in enumerate(names):  # the number of a quartile, or of a class
            pair = []
            for side in sides.values():
                value = np.quantile(list(side.values()), index / 4) if wide and side else side.get(index)
                pair.append(words.number(value, 1))
            shown[name] = " / ".join(pair)
        rows.append(shown)
        found.append({"point": point, "loss": label})
    titles = list(dict.fromkeys(key for row in rows for key in row))
    rows = [{key: row.get(key, "") for key in titles} for row in rows]
    caption = f"mean angle θ̄ in degrees{', quartiles over classes' if wide else ' by class'}, train / test."
    anchors = [[anchor(row)] for row in found]
    return table(found, rows, caption, left=["loss"], anchors=anchors, experiment=experiment)
