"""Made-up results of which every figure can be drawn: nothing is trained and nothing is written."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from hashlib import sha256

import numpy as np

from lossbench.analysis.results import Results
from lossbench.analysis.series import followed
from lossbench.core.format import Claim, Schedule, Timing
from lossbench.core.model import Cell, Record, Spec, SuiteInfo
from lossbench.plugins.metrics import METRICS
from lossbench.report import figures
from lossbench.report.figures.style import Drawing
from lossbench.store.records import tabulated

TOTAL = 5_000
LONG = ["softmax", "center", "l_softmax[m=2]", "a_softmax", "w_softmax[alpha=0.5]", "w_softmax[alpha=1.0]"]
TWENTY = [
    *LONG, "hinge", "contrastive", "triplet", "prototype", "normface", "cosface[s=16.0]", "arcface[m=0.3,s=16.0]",
    "subcenter_arcface[k=3,m=0.3,s=16.0]", "sphereface_r", "sphereface2", "curricularface", "adaface", "magface",
    "elasticface",
]  # fmt: skip


def spec(label: str) -> Spec:
    return Spec(label.partition("[")[0], {"written": label}, label, "0")


def made(experiment: str, dataset: str, labels, *, widths=(64,), classes=(10,), seeds=5, timing=0, evaluations=True):
    """The cells and records of an experiment with a known truth: loss i gains i/10 points, width and classes matter."""
    rng = np.random.default_rng(sum(map(ord, experiment + dataset)))
    specs = tuple(spec(label) for label in labels)
    common = {"task": "classification", "backbone": spec("cnn"), "warm": None, "threads": 1}
    environment = {"fingerprint": "abc"}
    found = []
    for k, asked in itertools.product(classes, widths):
        width = k - 1 if asked == "min" else asked
        data = spec(dataset if len(classes) == 1 else f"{dataset}[classes={k}]")
        place = {
            "experiment": experiment,
            "dataset": data,
            "width": width,
            "classes": k,
            "schedule": Schedule(steps=200),
            **common,
        }
        for seed in range(seeds):
            shared = rng.normal(0, 0.4)
            for index, one in enumerate(specs):
                cell = Cell(kind="train", losses=(one,), seed=seed, timing=None, **place)
                accuracy = 93 + shared + 0.1 * index - 12 / width - k / 40 + rng.normal(0, 0.25)
                angle = 60 - index + 4 * np.sin(np.arange(k)) + rng.normal(0, 1, k)
                steps = range(20, 201, 20)
                curve = [{"step": s, "loss": (2 + index / 5) * np.exp(-s / 60) + rng.uniform(0.05, 0.1)} for s in steps]
                for point in curve if evaluations else []:
                    point["correct"] = round(TOTAL * accuracy / 100 * (1 - np.exp(-point["step"] / 40)))
                sizes = {"fc": 4 * width * 500, "classifier": 4 * width * k, "loss": 4 * width * k * (index % 3 == 1)}
                sizes |= {"model": 40_000 + 4 * width * 500, "optimizer": 44_000 + 4 * width * 500}
                record = Record(
                    cell, "done", correct=round(TOTAL * accuracy / 100), total=TOTAL, curve=tuple(curve),
                    angles={"train": list(angle - 2), "test": list(angle)}, environment=environment,
                    bytes={**sizes, "peak": int(6e7 + 1e5 * rng.normal())},
                )  # fmt: skip
                found.append((cell, record))
        if timing:
            cell = Cell(kind="timing", losses=specs, seed=0, timing=Timing(rounds=timing), **place)
            base = rng.uniform(0.010, 0.012, timing)
            rounds = {
                x.label: list(base * (1 + 0.03 * i) * rng.uniform(0.98, 1.02, timing)) for i, x in enumerate(specs)
            }
            parts = {"forward": 0.4, "backward": 0.5, "optimizer": 0.1}
            split = {
                x: {name: [share * s for s in taken] for name, share in parts.items()} for x, taken in rounds.items()
            }
            found.append(
                (
                    cell,
                    Record(
                        cell,
                        "done",
                        rounds=rounds,
                        timing={"phases": split, "process": [5 * n // timing for n in range(timing)]},
                        environment=environment,
                    ),
                )
            )
    return found


def results_of(*groups, claims=()) -> Results:
    found = [pair for group in groups for pair in group]
    cells = tuple(cell for cell, _ in found)
    metrics = tuple(metric.plain for metric in METRICS.values())
    command = "lossbench run study.toml"
    info = SuiteInfo("study", "A study", "softmax", 0.5, tuple(claims), {}, None, command, metrics=metrics)
    records = tabulated(cells, {cell.key: record.to_json() for cell, record in found}, metrics)
    return Results(info, ("runs/study",), cells, records, {})


def with_features(results: Results, labels=10) -> Results:
    """The same records with the feature planes of width 2 that training keeps."""
    rng = np.random.default_rng(0)
    kept = []
    for row in results.records.to_dict("records"):
        if row["width"] != 2 or row["kind"] != "train":
            kept.append(None)
            continue
        turn = np.linspace(0, 2 * np.pi, labels, endpoint=False) + 0.2
        weights = np.column_stack([np.cos(turn), np.sin(turn)])
        classes = rng.integers(0, labels, 500)
        points = weights[classes] * rng.uniform(2, 12, (500, 1)) + rng.normal(0, 0.5, (500, 2))
        kept.append({"points": points.round(3).tolist(), "labels": classes.tolist(), "weights": weights.tolist()})
    frame = results.records.assign(features=kept)
    return Results(results.info, results.runs, results.cells, frame, {})


def stated(labels) -> list[Claim]:
    """Two statements of several cases, one of them long and with cases that no record answers."""
    named = {"Every loss is better than softmax": ("losses", "width"), f"So it is{' elsewhere' * 9}": ("lfw", "mnist")}
    return [
        Claim(text=f"{said} ({name}, {label})", statement=said, experiment=name, better=label, than="softmax")
        for said, names in named.items()
        for name in names
        for label in labels[1:4]
    ]


def study(labels=LONG) -> Results:
    """All that a figure can ask for: claims, timing, widths, classes, six datasets, features of width 2."""
    return with_features(
        results_of(
            made("losses", "digits", labels, seeds=10, timing=12),
            made("width", "digits", labels, widths=(2, "min", 90)),
            made("classes", "glyphs", labels[:3], widths=("min", 64), classes=(10, 200)),
            *(made(name, name, labels[:4], seeds=3) for name in ("mnist", "fashion_mnist", "cifar10", "omniglot")),
            claims=stated(labels),
        )
    )


def each_figure(results: Results) -> Iterator[Drawing]:
    """One drawing per figure function, of the first experiment for which it applies."""
    for group in figures.WHOLE.values():
        yield from (drawing for whole in group if (drawing := whole(results)))
    for each, variants in (pair for group in figures.EACH.values() for pair in group.items()):
        found = (drawing for name in results.experiments for drawing in figures.drawn(results, name, each, variants))
        yield from found if each is figures.along_axis else itertools.islice(found, 1)


def along(results: Results, experiment: str, axis: str) -> Drawing | None:
    """The figure along an axis; None where the experiment does not vary it."""
    found = (figures.along_axis(results, experiment, line) for line in followed(results, experiment) if
             line.axis == axis)  # fmt: skip
    return next(found, None)


def panel(drawing: Drawing, number: int = 0):
    return drawing.canvas.axes[number]


def labelled(ax, label: str) -> list:
    """What is drawn for a loss, in the order of drawing."""
    return [line for line in ax.lines if line.get_label() == label]


def hashes() -> list[str]:
    """The hashes of one figure in every format."""
    drawing = figures.step_time_forest(results_of(made("losses", "digits", LONG[:3], seeds=3, timing=5)))
    return [sha256(drawing.saved(kind)).hexdigest() for kind in ("svg", "pdf", "png")]
