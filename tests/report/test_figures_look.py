"""Figures apply or are left out, look the same everywhere and every time, and stay on their canvas."""

from __future__ import annotations

import cmath
import itertools
import math
import os
import subprocess
import sys
import xml.etree.ElementTree
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from kit.pictures import LONG, TWENTY, along, each_figure, hashes, made, results_of, study, with_features

from lossbench.analysis.results import Results
from lossbench.analysis.series import followed
from lossbench.core.format import Claim
from lossbench.core.model import Record
from lossbench.report import figures
from lossbench.report.figures.style import BASELINE_COLOUR, PALETTE, Drawing, looks, shown


@pytest.fixture(scope="module")
def results() -> Results:
    return study()


@pytest.fixture(scope="module")
def drawings(results) -> dict[str, Drawing]:
    return {drawing.name: drawing for drawing in each_figure(results)}


def test_figures_that_do_not_apply_are_none(results):
    without = results_of(made("one", "digits", ["softmax", "center"], seeds=1, evaluations=False))
    none = {
        each.__name__: figures.drawn(without, "one", each, variants)
        for group in figures.EACH.values()
        for each, variants in group.items()
    }
    none |= {whole.__name__: whole(without) for group in figures.WHOLE.values() for whole in group}
    drawn = {name for name, drawing in none.items() if drawing}
    assert drawn == {"angles_by_class", "memory_bars", "learning_curves"}
    assert along(results, "losses", "width") is None
    assert figures.step_time_forest(without) is None
    assert along(results, "width", "classes") is None
    assert figures.feature_scatter(results, "losses") is None  # width 64
    four = results_of(*(made(name, name, LONG, seeds=2) for name in "abcd"))
    assert figures.critical_difference_diagram(four) is None  # four datasets prove nothing


def test_a_run_with_nothing_finished_has_no_figure():
    group = made("one", "digits", LONG, seeds=2, timing=5)
    assert not list(each_figure(results_of([(cell, Record(cell, "failed", error="x")) for cell, _ in group])))
    empty = results_of(group)
    nothing = Results(empty.info, empty.runs, empty.cells, empty.records.iloc[:0], {})
    assert not list(each_figure(nothing))


def test_every_loss_has_one_look_everywhere(results, drawings):
    look = looks(results.labels)
    seen = set()
    for drawing in drawings.values():
        for ax in drawing.canvas.axes:
            for line in (line for line in ax.lines if line.get_label() in look):
                seen.add(drawing.name.partition("-")[0])
                assert line.get_color() == look[line.get_label()].colour, (drawing.name, line.get_label())
    assert seen >= {"differences", "step", "seeds", "ranks", "axis", "learning", "angles", "memory", "pareto"}


def test_an_experiment_has_at_most_one_figure_of_a_kind_and_one_per_axis(results):
    two = results_of(*(made("losses", name, LONG, seeds=3, widths=(8, 64), timing=5) for name in ("digits", "glyphs")))
    for found in (results, two):
        drawn = [drawing for slug in {**figures.WHOLE, **figures.EACH} for drawing in figures.of_section(found, slug)]
        names = [drawing.name for drawing in drawn]
        kinds = Counter((name.partition("-")[0], name.rpartition("-")[2]) for name in names if "axis-" not in name)
        assert max(kinds.values()) == 1
        axes = [name for name in names if name.startswith("axis-")]
        assert len(axes) == sum(len(followed(found, name)) for name in found.experiments)
    (pairs,) = (drawing for drawing in drawn if drawing.name == "pairs-losses")
    assert pairs.caption.endswith("One of 2 datasets.")


def test_twenty_five_losses_have_twenty_five_colours():
    labels = [f"loss {number}" for number in range(60)]
    look = looks(labels)
    assert look[labels[0]].colour == BASELINE_COLOUR
    assert len({look[label].colour for label in labels[:25]}) == 25
    assert len({(one.colour, one.marker) for one in look.values()}) == 60  # then colours repeat with other markers
    assert looks(labels[:4]) == {label: look[label] for label in labels[:4]}
    some = list(look.values())[:11]
    assert len({(one.marker, str(one.dash)) for one in some}) == 11  # as many as a panel of lines has


# Machado, Oliveira & Fernandes 2009, severity 1, on linear RGB.
SIGHT = {
    "normal": np.eye(3),
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "tritanopia": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}
TO_XYZ = np.array(
    [[0.4124564, 0.3575761, 0.1804375], [0.2126729, 0.7151522, 0.0721750], [0.0193339, 0.1191920, 0.9503041]]
)


def linear(colour: str) -> np.ndarray:
    value = np.array([int(colour[start : start + 2], 16) / 255 for start in (1, 3, 5)])
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    xyz = TO_XYZ @ np.clip(rgb, 0, 1) / [0.95047, 1, 1.08883]
    f = np.where(xyz > (6 / 29) ** 3, np.cbrt(xyz), xyz / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def apart(one: np.ndarray, other: np.ndarray) -> float:
    """CIEDE2000 of two colours (Sharma, Wu & Dalal 2005); 1 is just noticeable side by side."""
    (l1, a1, b1), (l2, a2, b2) = one, other
    mean = (math.hypot(a1, b1) + math.hypot(a2, b2)) / 2
    g = (1 - math.sqrt(mean**7 / (mean**7 + 25**7))) / 2
    first, second = complex((1 + g) * a1, b1), complex((1 + g) * a2, b2)
    c1, c2 = abs(first), abs(second)
    h1, h2 = (math.degrees(cmath.phase(each)) % 360 for each in (first, second))
    turn = (h2 - h1 + 180) % 360 - 180 if c1 * c2 else 0.0
    hue = (h1 + turn / 2) % 360 if c1 * c2 else h1 + h2
    light, chroma = (l1 + l2) / 2, (c1 + c2) / 2
    cos = {n: math.cos(math.radians(n * hue + shift)) for n, shift in ((1, -30), (2, 0), (3, 6), (4, -63))}
    t = 1 - 0.17 * cos[1] + 0.24 * cos[2] + 0.32 * cos[3] - 0.20 * cos[4]
    dl = (l2 - l1) / (1 + 0.015 * (light - 50) ** 2 / math.sqrt(20 + (light - 50) ** 2))
    dc = (c2 - c1) / (1 + 0.045 * chroma)
    dh = 2 * math.sqrt(c1 * c2) * math.sin(math.radians(turn / 2)) / (1 + 0.015 * chroma * t)
    bend = 60 * math.exp(-(((hue - 275) / 25) ** 2))
    rotation = -2 * math.sqrt(chroma**7 / (chroma**7 + 25**7)) * math.sin(math.radians(bend))
    return math.sqrt(dl**2 + dc**2 + dh**2 + rotation * dc * dh)


def test_distances_of_colours_are_those_of_the_published_table():
    table = [
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, -1.3802, -84.2814), (50, 0, -82.7485), 1.0),
        ((50, 2.49, -0.001), (50, -2.49, 0.0011), 7.2195),
        ((50, 2.5, 0), (58, 24, 15), 19.4535),
        ((2.0776, 0.0795, -1.135), (0.9033, -0.0636, -0.5514), 0.9082),
    ]
    for one, other, distance in table:
        assert apart(one, other) == pytest.approx(distance, abs=1e-4)


@pytest.mark.parametrize(
    ("sight", "least"), [("normal", 14), ("protanopia", 8), ("deuteranopia", 7), ("tritanopia", 9)]
)
def test_colours_differ_for_every_kind_of_colour_vision(sight, least):
    """Pairs below 10 can be confused in thin lines and small marks: these have different markers."""
    look = list(looks([f"loss {number}" for number in range(25)]).values())
    seen = [lab(SIGHT[sight] @ linear(one.colour)) for one in look]
    for (one, first), (other, second) in itertools.combinations(zip(look, seen, strict=True), 2):
        distance = apart(first, second)
        assert distance > least, (one, other)
        assert distance > 10 or one.marker != other.marker, (one, other)


def test_colours_stand_out_on_their_card():
    for colour in (BASELINE_COLOUR, *PALETTE):
        assert 1.05 / (TO_XYZ[1] @ linear(colour) + 0.05) > 2


@pytest.mark.parametrize("labels", [LONG, TWENTY], ids=["few losses", "twenty losses"])
def test_nothing_is_drawn_outside_the_canvas(labels, drawings):
    each = drawings.values()
    if labels is TWENTY:
        each = each_figure(results_of(made("losses", "fashion_mnist", labels, seeds=3, timing=5)))
    for drawing in each:
        box = drawing.canvas.get_tightbbox()
        assert box.x0 >= 0 and box.y0 >= 0, drawing.name
        assert box.x1 <= drawing.width and box.y1 <= drawing.height, drawing.name


def test_a_heatmap_of_many_long_names_stays_on_the_canvas():
    labels = ["softmax", *(f"w_softmax[alpha={n / 2},gradient=fixed_negatives]" for n in range(1, 12))]
    drawing = figures.pairwise_heatmap(results_of(made("losses", "mnist", labels, seeds=3)), "losses")
    box = drawing.canvas.get_tightbbox()
    assert box.x0 >= 0 and box.x1 <= drawing.width


def test_long_labels_lose_what_distinguishes_them_least():
    labels = [
        "softmax",
        *(f"w_softmax[alpha={a},gradient={g}]" for a in (0.5, 1.0) for g in ("fixed_bias", "fixed_all")),
    ]
    assert shown(labels, 40) == {label: label for label in labels}
    assert list(shown(labels, 30).values())[1:3] == ["w_softmax[0.5,fixed_bias]", "w_softmax[0.5,fixed_all]"]
    assert list(shown(labels, 24).values())[1:3] == ["w_softmax[0.5,fixed_b…]", "w_softmax[0.5,fixed_a…]"]
    sized = [f"subcenter_arcface[k={k},m=0.3,s=16.0]" for k in (3, 5)]
    assert list(shown(["arcface[m=0.3,s=16.0]", *sized], 24).values()) == [
        "arcface",
        "subcenter_arcface[k=3]",
        "subcenter_arcface[k=5]",
    ]
    for most in (12, 16, 20):
        found = list(shown(labels, most).values())
        assert len(set(found)) == len(labels) and max(map(len, found)) <= most


def test_names_do_not_overlap(drawings):
    """Neither those along an axis nor those of a critical-difference diagram."""
    twenty = results_of(*(made(name, name, TWENTY, seeds=1, evaluations=False) for name in "abcde"))
    ranked = {"ranks of twenty": figures.critical_difference_diagram(twenty)}
    for name, drawing in {**drawings, **ranked}.items():
        for ax in drawing.canvas.axes:
            groups = [ax.get_yticklabels()] if ax.get_visible() else []
            groups += [[text for text in ax.texts if text.get_text().strip()]] if name.startswith("ranks") else []
            for group in groups:
                boxes = [text.get_window_extent() for text in group if text.get_text()]
                for one, other in itertools.combinations(boxes, 2):
                    assert not one.shrunk(0.98, 0.9).overlaps(other.shrunk(0.98, 0.9)), name


OPTIONS = ",".join(f"option_number_{number}={number}.25" for number in range(6))
# 110 letters or more each: two that differ in the middle alone, one without a place to break, controls and dollars.
ENDLESS = [
    "baseline_" + "x" * 101,
    f"loss[alpha=1.0,{OPTIONS},beta=1.0]",
    f"loss[alpha=1.0,{OPTIONS.replace('3.25', '3.75')},beta=1.0]",
    f"w_softmax[$\\frac{{$=1,{OPTIONS}]",
    f"center[note=\x1b[31m red\nand\tmore,{OPTIONS}]",
]


@pytest.fixture(scope="module")
def endless() -> list[Drawing]:
    """Every kind of figure of losses, datasets and statements with endless names."""
    long_set = f"folder[path=/data/{'d' * 100}]"
    claims = [
        Claim(
            text=f"{index}",
            statement=f"{'W' * 110} $\\frac{{$ \x1b[31m",
            experiment="losses",
            better=label,
            than=ENDLESS[0],
        )
        for index, label in enumerate(ENDLESS[1:])
    ]
    found = results_of(
        made("losses", long_set, ENDLESS, seeds=10, timing=12),
        made("width", "digits", ENDLESS[:3], widths=(2, "min")),
        made("classes", "glyphs", ENDLESS[:3], widths=("min", 64), classes=(10, 50)),
        *(made(name, name, ENDLESS[:3], seeds=3) for name in ("mnist", "fashion_mnist", "cifar10")),
        claims=claims,
    )
    found = with_features(replace(found, info=replace(found.info, baseline=ENDLESS[0])))
    return list(each_figure(found))


def test_endless_names_are_shortened_and_nothing_overlaps_or_leaves_the_canvas(endless):
    kinds = {drawing.name.partition("-")[0] for drawing in endless}
    assert len(kinds) >= 13
    for drawing in endless:
        box = drawing.canvas.get_tightbbox()
        assert box.x0 >= 0 and box.y0 >= 0, drawing.name
        assert box.x1 <= drawing.width and box.y1 <= drawing.height, drawing.name
        for ax in (ax for ax in drawing.canvas.axes if ax.get_visible()):
            inside = ax.get_position()
            assert inside.width * drawing.width > 0.9, drawing.name  # there is room left for what is drawn
            texts = [text for text in ax.get_yticklabels() if text.get_text()]
            texts += [text for text in ax.texts if text.get_text().strip()] if drawing.name.startswith("ranks") else []
            for one, other in itertools.combinations([text.get_window_extent() for text in texts], 2):
                assert not one.shrunk(0.98, 0.9).overlaps(other.shrunk(0.98, 0.9)), drawing.name


def test_endless_names_stay_apart_and_without_control_characters(endless):
    forest = next(drawing for drawing in endless if drawing.name == "differences")
    panels = [[text.get_text() for text in ax.get_yticklabels()] for ax in forest.canvas.axes]
    assert len(set(panels[0])) == len(ENDLESS) - 1
    assert all(set(names) <= set(panels[0]) for names in panels)  # a loss has one name in all panels
    assert all(len(name) <= 48 and name.isprintable() for name in panels[0])
    for drawing in endless:
        xml.etree.ElementTree.fromstring(drawing.svg)
        assert "\x1b" not in drawing.svg


def test_all_panels_of_a_shared_axis_show_their_points():
    found = results_of(made("classes", "glyphs", LONG[:3], widths=("min", 64), classes=(10, 50)))
    for ax in along(found, "classes", "classes").canvas.axes:
        low, high = ax.get_ylim()
        heights = [value for line in ax.lines for value in line.get_ydata()]
        assert low <= min(heights) <= max(heights) <= high


@pytest.mark.slow
def test_another_process_with_other_hashes_writes_the_same_bytes():
    script = "import sys; sys.path.insert(0, sys.argv[1]); from kit.pictures import hashes; print(hashes())"
    command = [sys.executable, "-c", script, str(Path(__file__).parents[1])]
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert ran.stdout.strip() == str(hashes())


def test_figures_have_the_same_bytes_when_drawn_again(results, drawings):
    again = [
        *(figures.critical_difference_diagram(results), figures.seed_dots(results, "losses")),
        *(along(results, "width", "width"), figures.memory_bars(results, "losses")),
    ]
    for drawing in again:
        assert drawing.svg == drawings[drawing.name].svg, drawing.name


def test_text_stays_text_and_no_file_has_a_date(drawings):
    drawing = drawings["step-time"]
    assert ">w_softmax[alpha=1.0]<" in drawing.svg
    assert "Verdana, sans-serif" in drawing.svg
    assert "<dc:date>" not in drawing.svg
    pdf = drawing.saved("pdf")
    assert pdf.startswith(b"%PDF")
    assert b"CreationDate" not in pdf
    assert drawing.saved("png").startswith(b"\x89PNG")
    block = drawing.block()
    assert (block.name, block.svg, block.caption) == ("step-time", drawing.svg, drawing.caption)


@pytest.mark.slow
def test_figures_rendered_by_several_processes_are_the_same_to_the_byte():
    """In a process of its own, since the one that runs the tests has threads; a worker that dies is replaced."""
    code = """if True:
        import os, sys
        from lossbench.report import parallel
        from lossbench.report.figures.style import Drawing
        def made():
            return [Drawing(f"n{n}", "", 3, 2, lambda canvas, n=n: canvas.subplots().plot([0, n])) for n in range(6)]
        alone = [drawing.svg for drawing in made()]
        os.sched_getaffinity = lambda pid: {0, 1, 2}
        forked, fork = [], os.fork
        os.fork = lambda: forked.append(1) or fork()
        together = made()
        parallel.render(together)
        assert len(forked) == 2 and [drawing.__dict__["svg"] for drawing in together] == alone
        def dies(canvas, here=os.getpid()):
            canvas.subplots()
            os.getpid() == here or os.kill(os.getpid(), 9)
        mortal = [Drawing(f"n{n}", "", 3, 2, dies) for n in range(6)]
        parallel.render(mortal)
        assert all("<svg" in drawing.svg for drawing in mortal)
    """
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
