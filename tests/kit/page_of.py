"""Pages for tests: a run with known differences, and sections that depend on no other test."""

from __future__ import annotations

from pathlib import Path

from conftest import SMALL
from kit.known_truth import CLAIMS
from kit.synthetic import Truth, common, noise

from lossbench.analysis.results import Results
from lossbench.report import words
from lossbench.report.blocks import Anchor, Figure, Prose, Section, Table
from lossbench.report.output import html

LOSSES = ["softmax", "center", "l_softmax[m=2]", "hinge", "w_softmax"]
SUITE = (
    SMALL.replace("seeds = 2", "seeds = 6").replace(
        '"w_softmax"]', '"center", { name = "l_softmax", m = 2 }, "hinge", "w_softmax"]'
    )
    + """timing = { rounds = 9 }

[[experiment]]
name = "widths"
dataset = "digits"
backbone = { name = "cnn", channels = 4, depths = [1] }
widths = [4, 9, 20]
losses = ["softmax", "w_softmax"]
seeds = 6
schedule = { steps = 6, batch = 16 }
"""
    + CLAIMS
)
# Points above softmax: center nothing, w_softmax clearly better, hinge worse, l_softmax far off.
GAIN = {"softmax": 0.0, "center": 0.0, "w_softmax": 3.0, "hinge": -2.0, "l_softmax": -40.0}
TIMES = {"w_softmax": 1.2, "hinge": 0.9, "l_softmax[m=2]": 4.0}


def truth(cell) -> Truth:
    """A little noise around the gains; curves with both series."""
    accuracy = 90 + common(cell.seed) + GAIN[cell.loss.name] + noise(cell, 0.05)
    curve = tuple({"step": step, "loss": 2 / step, "correct": 1000 * step} for step in range(1, 7))
    return Truth(accuracy, angle=40 + noise(cell, 1), curve=curve)


def sections(results: Results) -> list[Section]:
    """An answer, a section of claims, and an appendix; a figure, which the page leaves out."""
    frame, headline = results.main, results.headline
    found = {
        (row["point"], row["loss"]): row
        for row in results.comparisons.to_dict("records")
        if row["metric"] == headline.name
    }
    rows, anchors = [], []
    for row in frame.to_dict("records"):
        mine = found.get((row["point"], row["loss"]))
        rows.append(
            {
                "loss": row["loss"],
                "M": words.axis(row["point"], "width"),
                "accuracy, %": words.number(row["value"]),
                "Δ points": words.difference(mine, unit=False) if mine else words.DASH,
                "verdict": mine["verdict"] if mine else "baseline",
                "where": f"{row['experiment']} {row['point'].told()}",
            }
        )
        anchors.append(
            list(dict.fromkeys([Anchor(row["point"], row["loss"]), Anchor(row["point"], results.info.baseline)]))
        )
    left = ["loss", "verdict", "where"]
    table = Table.of(rows, left=left, caption="Losses: a caption.", anchors=anchors)
    figure = Figure("drawn", "<svg><title>inlined</title></svg>", "A figure")
    return [
        Section("answer", "Answer", (Prose("Nothing beats softmax & co."), figure, table)),
        Section("claims", "Claims", (Prose("What the suite states."),)),
        Section("only-figures", "Only figures", (figure,)),
        Section("details", "Details", (table, Prose("lossbench report runs/small", code=True)), appendix=True),
    ]


def written(results: Results, path: Path) -> Path:
    """The page of these results with these sections."""
    path.write_text(html.html(results, sections(results)), encoding="utf-8")
    return path
