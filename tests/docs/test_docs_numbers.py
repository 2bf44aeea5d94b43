"""Numbers that README.md and docs/ quote are those of the committed reports and tables; the citation is well-formed."""

from __future__ import annotations

import csv
import functools
import json
import re
import tarfile
import tomllib

import pytest
from kit.pages import DOCS, README, ROOT, rows, section

CFF_KEYS = {
    *("abstract", "authors", "cff-version", "commit", "contact", "date-released", "doi", "identifiers", "keywords"),
    *("license", "license-url", "message", "preferred-citation", "references", "repository", "repository-artifact"),
    *("repository-code", "title", "type", "url", "version"),
}
CLASSIFIED = {
    "mnist": "MNIST",
    "fashion_mnist": "Fashion-MNIST",
    "cifar10": "CIFAR-10",
    "tiny_imagenet": "Tiny ImageNet",
}
CFF_REFERENCE_KEYS = {"type", "title", "authors", "year", "identifiers", "url", "notes"}  # those of ours


def test_the_costs_that_the_readme_quotes_are_those_of_the_whole_table():
    table = rows(DOCS / "losses.md", "| (B, C, M)")
    column = table[0].index("(128, 10575, 512)")
    ours = {name: float(values[column - 1]) for name, *values in table[3:] if "(" not in name}
    dearest = ours.pop("subcenter_arcface")
    text = section(README, "What is included")
    assert f"{min(ours.values()):.2f}–{max(ours.values()):.2f} times" in text
    assert f"{dearest:.2f})" in text
    assert "0.99–1.06 times" in text and "0.99–1.06 times" in (DOCS / "losses.md").read_text()


def test_the_angles_quoted_are_those_of_the_quick_report():
    measured, _ = _reported("quick", "losses")
    for name, angle, between, accuracy in rows(DOCS / "differences.md", "| loss | mean test angle")[2:]:
        row = measured[re.sub(r", α = (.*)", r"[alpha=\1]", name)]
        told = f"{row['angle_test']:.1f}°", f"{row['weight_angle']:.1f}°", f"{row['accuracy']:.2f} %"
        assert (angle, between, accuracy) == told


def test_the_gradients_quoted_are_those_of_the_papers_report():
    report = _report("paper")
    means, differences = (
        {
            (row["loss_lr"], row["loss"]): row
            for row in report[key]
            if row["experiment"] == "mnist_gradients" and row.get("metric", "accuracy") == "accuracy"
        }
        for key in ("main", "comparisons")
    )
    verdicts = {
        (row["statement"], row["text"].partition("(")[2]): row["verdict"] + _star(row)
        for row in report["claims"]
        if row["experiment"] == "mnist_gradients"
    }
    marks = {"better": "▲", "worse": "▼", "undecided": "?", "equivalent": "≈"}
    table = rows(DOCS / "differences.md", "| `loss_lr` |")[2:]
    assert len(table) == 12
    for rate, gradient, softmax, angles, falls, gains, rises in table:
        mine = [(float(rate), f"w_softmax[alpha={alpha},gradient={gradient}]") for alpha in (0.5, 1.0, 1.5)]
        case = f"mnist_gradients, w_softmax[gradient={gradient}]) (loss_lr = {rate})"
        assert softmax == f"{means[float(rate), 'softmax']['angle_test']:.0f}°"
        assert angles == " / ".join(f"{means[key]['angle_test']:.0f}°" for key in mine)
        told = (
            f"{row['delta']:+.2f} {marks[row['verdict']]}{_star(row)}" for row in map(differences.__getitem__, mine)
        )
        assert gains == " / ".join(told).replace("-", "−")
        assert falls == verdicts["The mean angle falls with α, for each reading of the gradient", case]
        assert rises == verdicts["The larger α, the higher the accuracy, for each reading of the gradient", case]
    trends = [verdict for *_, falls, _, rises in table for verdict in (falls, rises)]
    fragile, contradicted = trends.count(r"contradicted\*"), sum(trend.startswith("contra") for trend in trends)
    text = " ".join((DOCS / "differences.md").read_text().split())
    assert f"{fragile} of the {contradicted} contradicted trends depend on one seed" in text
    decided = differences[1.0, "w_softmax[alpha=0.5,gradient=fixed_negatives]"]
    assert (
        f"{decided['delta']:+.2f} points, simultaneous interval {decided['low']:+.2f} to {decided['high']:+.2f}" in text
    )
    reached = {
        row["loss"]: row["accuracy"] for row in report["main"] if (row["experiment"], row["lr"]) == ("along_lr", 0.05)
    }
    said = "`fixed_negatives` reached {:.1f} %, the exact gradient {:.1f} % and softmax {:.1f} %"
    order = ("w_softmax[gradient=fixed_negatives]", "w_softmax[gradient=exact]", "softmax")
    assert said.format(*map(reached.__getitem__, order)) in text


def _star(row: dict) -> str:
    return r"\*" * ("one seed decides" in (row["flags"] or ""))


def test_what_the_readme_says_of_the_paper_is_what_its_report_says():
    text = section(README, "Case study: the W-Softmax paper")
    for experiment, name in {**CLASSIFIED, "lfw_alone": "LFW", "omniglot": "Omniglot"}.items():
        worse = -_reported("paper", experiment)[1]["w_softmax[alpha=1.0]"]["delta"]
        assert re.search(rf"\b{worse:.1f} (points )?on\s{name}\b", text), (name, worse)
    gains = _reported("paper", "omniglot")[1]
    ahead = [gains[label] for label in ("l_softmax[m=2]", "a_softmax", "center")]
    assert "{:.1f}, {:.1f} and {:.1f} points ahead".format(*(row["delta"] for row in ahead)) in " ".join(text.split())
    assert {(row["verdict"], row["flags"]) for row in ahead} == {("better", "")}
    gains = _reported("paper", "lfw_alone")[1]
    ahead = [gains[label] for label in ("l_softmax[m=2]", "center")]
    assert "ahead by {:.1f} and {:.1f}".format(*(row["delta"] for row in ahead)) in " ".join(text.split())
    assert {row["verdict"] for row in ahead} == {"better"}
    angles = {label: row["angle_test"] for label, row in _reported("paper", "mnist")[0].items()}
    assert f"{angles['softmax']:.0f}° with softmax" in text
    turned = [angles[f"w_softmax[alpha={alpha}]"] for alpha in (0.5, 1.0, 1.5)]
    assert "{:.0f}°, {:.0f}° and {:.0f}° with α = 0.5, 1 and 1.5".format(*turned) in text
    tuned = {
        row["dataset"]: row
        for row in _report("paper")["comparisons"]
        if (row["experiment"], row["metric"], row["loss"]) == ("tuned-tuned", "accuracy", "w_softmax")
    }
    deltas = [f"{tuned[name]['delta']:+.2f}".replace("-", "−") for name in ("mnist", "fashion_mnist")]
    said = "is {} points on MNIST and {} on Fashion-MNIST, both undecided"
    assert said.format(*deltas) in " ".join(text.split())
    assert {row["verdict"] for row in tuned.values()} == {"undecided"}
    with (ROOT / "reports/paper/tuning.csv").open() as file:
        chosen = {row["chosen"] for row in csv.DictReader(file) if row["loss"] == "w_softmax"}
    (alpha,) = {float(setting.partition("alpha=")[2]) for setting in chosen}
    assert f"The chosen α is {alpha:.2f} on both" in " ".join(text.split())
    means = _reported("paper", "mnist_protocol")[0]
    told = [means[f"w_softmax[alpha=1.0,gradient={gradient}]"]["accuracy"] for gradient in ("exact", "fixed_negatives")]
    said = "softmax reaches {:.1f} %, W-Softmax {:.1f} % (exact) and {:.1f} % (`fixed_negatives`)"
    assert said.format(means["softmax"]["accuracy"], *told) in " ".join(text.split())
    cells = sum(_report("paper")["statuses"].values())
    assert f"{cells:,} cells" in text


def test_the_gaps_along_steps_images_and_learning_rates_are_those_of_the_report():
    for experiment, axis, said in (
        ("along_steps", "steps", "{:.1f}, {:.1f} and {:.1f} points after 500"),
        ("along_train", "train", "{:.1f}, {:.1f} and {:.1f} with"),
        ("along_lr", "lr", "{:.1f}, {:.1f} and {:.1f} at"),
    ):
        report = _report("paper")["comparisons"]
        mine = [row for row in report if (row["experiment"], row["metric"]) == (experiment, "accuracy")]
        exact = sorted((row[axis], -row["delta"]) for row in mine if row["loss"] == "w_softmax[gradient=exact]")
        assert said.format(*(worse for _, worse in exact)).replace("-", "−") in " ".join(
            (DOCS / "differences.md").read_text().split()
        )


def test_what_the_docs_say_of_the_papers_own_network_is_what_the_report_says():
    means = _reported("paper", "mnist_protocol")[0]
    losses = ["softmax", *(f"w_softmax[alpha=1.0,gradient={gradient}]" for gradient in ("exact", "fixed_negatives"))]
    accuracies = [means[loss]["accuracy"] for loss in losses]
    text = " ".join((DOCS / "differences.md").read_text().split())
    said = "Softmax reaches {:.2f} %, W-Softmax with α = 1 {:.2f} % with the exact gradient and {:.2f} % with"
    assert said.format(*accuracies) in text
    assert "mean angles of {:.0f}°, {:.0f}° and {:.0f}°".format(*(means[loss]["angle_test"] for loss in losses)) in text
    published = {row["loss"]: row for row in _report("paper")["published"] if row["experiment"] == "mnist_protocol"}
    first, *others = (published[loss] for loss in losses)
    assert f"{first['low']:.2f} to {first['high']:.2f} %" in text and first["low"] < first["published"] < first["high"]
    assert all(row["published"] > row["high"] for row in others)


def test_the_training_losses_quoted_are_those_of_the_papers_records():
    names = CLASSIFIED
    last: dict[tuple[str, str], list[float]] = {}
    with tarfile.open(ROOT / "reports/paper/records.tar.xz") as archive:
        plan = json.load(archive.extractfile("paper/plan.json"))
        planned = {
            cell["key"]: cell["experiment"]
            for cell in plan["cells"]
            if cell["kind"] == "train" and cell["experiment"] in names
        }
        for member in archive:
            run, _, key, name = (*member.name.split("/"), "", "", "")[:4]
            if (run, name) == ("paper", "record.json") and key in planned:
                record = json.load(archive.extractfile(member))
                last.setdefault((planned[key], record["label"]), []).append(record["curve"][-1]["loss"])
    means = {place: sum(losses) / len(losses) for place, losses in last.items()}
    text = " ".join((DOCS / "differences.md").read_text().split())
    ours = [f"{means[experiment, 'w_softmax[alpha=1.0]']:.3f} on {name}" for experiment, name in names.items()]
    theirs = [f"{means[experiment, 'softmax']:.3f}" for experiment in names]
    assert f"ends at {', '.join(ours[:-1])} and {ours[-1]}" in text
    assert f"softmax has {', '.join(theirs[:-1])} and {theirs[-1]}" in text
    assert f"({ours[2]}, softmax {theirs[2]})" in " ".join(section(README, "Case study: the W-Softmax paper").split())


@functools.cache
def _report(name: str) -> dict:
    return json.loads((ROOT / "reports" / name / "report.json").read_text())


def _reported(name: str, experiment: str) -> tuple[dict[str, dict], dict[str, dict]]:
    """What a committed report has of an experiment of one point, by loss: the means, and differences in accuracy."""
    report = _report(name)
    means, differences = (
        {
            row["loss"]: row
            for row in report[key]
            if row["experiment"] == experiment and row.get("metric", "accuracy") == "accuracy"
        }
        for key in ("main", "comparisons")
    )
    return means, differences


def test_the_citation_has_the_form_of_cff_1_2():
    yaml = pytest.importorskip("yaml")  # it comes with timm
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert found.keys() <= CFF_KEYS and {"cff-version", "message", "title", "authors"} <= found.keys()
    assert (found["cff-version"], found["type"]) == ("1.2.0", "software")
    assert (found["title"], found["version"], found["license"]) == (
        project["name"],
        project["version"],
        project["license"],
    )
    assert found["authors"] == [{"name": "The lossbench developers"}]
    (paper,) = found["references"]
    assert {"type", "title", "authors"} <= paper.keys() <= CFF_REFERENCE_KEYS
    assert isinstance(paper["year"], int) and paper["url"].startswith("https://")
    for identifier in paper["identifiers"]:
        assert identifier.keys() == {"type", "value"} and identifier["type"] in ("doi", "other", "swh", "url")
