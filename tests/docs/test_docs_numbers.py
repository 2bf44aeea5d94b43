"""Numbers that README.md and docs/ quote are those of the committed reports and tables; the citation is well-formed."""

from __future__ import annotations

import json
import re
import tomllib

import pytest
from kit.pages import DOCS, README, ROOT, rows, section

CFF_KEYS = {
    *("abstract", "authors", "cff-version", "commit", "contact", "date-released", "doi", "identifiers", "keywords"),
    *("license", "license-url", "message", "preferred-citation", "references", "repository", "repository-artifact"),
    *("repository-code", "title", "type", "url", "version"),
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
    reported = [_reported("paper", experiment) for experiment in ("mnist_gradients", "cifar10_gradients")]
    softmax, *others = rows(DOCS / "differences.md", "| | MNIST: angle")[2:]
    told = [
        (f"{means['softmax']['angle_test']:.1f}°", f"{means['softmax']['accuracy']:.2f} %") for means, _ in reported
    ]
    assert softmax == ["softmax", *told[0], *told[1]]
    assert len(others) == 9
    alpha = ""
    for name, *quoted in others:
        alpha = found[1] if (found := re.match(r"α = (.*), ", name)) else alpha
        label = f"w_softmax[alpha={alpha},gradient={re.search('`(.*)`', name)[1]}]"
        told = [(f"{means[label]['angle_test']:.1f}°", _difference(by_loss[label])) for means, by_loss in reported]
        assert quoted == [*told[0], *told[1]], label


def test_what_the_readme_says_of_the_paper_is_what_its_report_says():
    text = section(README, "Case study: the W-Softmax paper")
    names = {"mnist": "MNIST", "cifar10": "CIFAR-10", "lfw_alone": "LFW", "omniglot": "Omniglot"}
    for experiment, name in names.items():
        worse = -_reported("paper", experiment)[1]["w_softmax[alpha=1.0]"]["delta"]
        assert re.search(rf"\b{worse:.1f} (points )?on {name}\b", text), (name, worse)
    angles = {label: row["angle_test"] for label, row in _reported("paper", "mnist")[0].items()}
    assert f"{angles['softmax']:.0f}° with softmax" in text
    turned = [angles[f"w_softmax[alpha={alpha}]"] for alpha in (0.5, 1.0, 1.5)]
    assert "{:.0f}°, {:.0f}° and {:.0f}° with α = 0.5, 1 and 1.5".format(*turned) in text
    stopped = [
        row["angle_test"] for label, row in _reported("paper", "mnist_gradients")[0].items() if "=fixed" in label
    ]
    assert f"it is {min(stopped):.0f}° to {max(stopped):.0f}°" in text
    cells = sum(json.loads((ROOT / "reports/paper/report.json").read_text())["statuses"].values())
    assert f"{cells:,} cells" in text


def _reported(name: str, experiment: str) -> tuple[dict[str, dict], dict[str, dict]]:
    """What a committed report has of an experiment of one point, by loss: the means, and differences in accuracy."""
    report = json.loads((ROOT / "reports" / name / "report.json").read_text())
    means, differences = (
        {
            row["loss"]: row
            for row in report[key]
            if row["experiment"] == experiment and row.get("metric", "accuracy") == "accuracy"
        }
        for key in ("main", "comparisons")
    )
    return means, differences


def _difference(row: dict) -> str:
    return "{:+.2f} [{:+.2f}, {:+.2f}]".format(*(row[key] for key in ("delta", "low", "high"))).replace("-", "−")


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
