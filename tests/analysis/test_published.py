"""Published numbers: a verdict where the protocols agree, and what differs where they do not."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from conftest import SMALL
from kit.synthetic import Truth, analysed, common, write_run

from lossbench.analysis.results import analyse
from lossbench.core.errors import SuiteError
from lossbench.report.sections.claims import published

SEEDS = SMALL.replace("seeds = 2", "seeds = 8")
PROTOCOL = 'published = { values = { "softmax" = 90.2 }, source = "Table 1", protocol = PROTOCOL }\n'


def results(read_suite, stated, spread=1.0):
    suite = read_suite(SEEDS + stated)
    return analysed(suite, lambda cell: Truth(90 + spread * common(cell.seed)))


def test_the_interval_is_where_one_more_run_would_fall(read_suite):
    found = results(read_suite, PROTOCOL.replace("PROTOCOL", '"same"'))
    row = found.published.iloc[0]
    values = found.trained[found.trained["label"] == "softmax"]["accuracy"].astype(float)
    half = scipy.stats.t.ppf(0.975, 7) * values.std(ddof=1) * math.sqrt(1 + 1 / 8)
    assert (row["low"], row["high"]) == pytest.approx((values.mean() - half, values.mean() + half))
    assert (row["published"], row["n"], row["source"]) == (90.2, 8, "Table 1")


@pytest.mark.parametrize(
    ("value", "spread", "verdict"),
    [(90.2, 0.3, "reproduced"), (95.0, 0.2, "below"), (85.0, 0.2, "above"), (90.2, 3.0, "underpowered")],
)
def test_a_number_of_the_same_protocol_has_a_verdict(value, spread, verdict, read_suite):
    published = PROTOCOL.replace("PROTOCOL", '"same"').replace("90.2", str(value))
    row = results(read_suite, published, spread).published.iloc[0]
    assert row["verdict"] == verdict
    assert row["differs"] == ""


def test_what_differs_is_listed_and_makes_it_not_comparable(read_suite):
    protocol = """{ dataset = "mnist", train = 60000, test = 10000, classes = 10, width = 8, steps = 12000, batch = 16,
      lr = 0.01, momentum = 0.9, backbone = { name = "cnn", channels = 64, depths = [1] }, augment = ["flip"],
      other = ["mean of the best epochs"] }""".replace("\n", " ")
    found = results(read_suite, PROTOCOL.replace("PROTOCOL", protocol).replace("90.2", "99.5"))
    row = found.published.iloc[0]
    assert row["verdict"] == "not comparable"
    assert row["differs"].split("; ") == [
        "dataset mnist in the paper, digits here",
        "train 60,000 in the paper, 1,201 here",
        "backbone channels 64 in the paper, 4 here",
        "steps 12,000 in the paper, 6 here",
        "augment flip in the paper, none here",
        "mean of the best epochs",
    ]


def test_every_key_of_the_recipe_can_be_stated(read_suite):
    same = """{ optimizer = "sgd", decay = "constant", warmup = 0, loss_lr = 1.0, decay_norms = true, epochs = 0.08 }"""
    assert results(read_suite, PROTOCOL.replace("PROTOCOL", same), 0.3).published.iloc[0]["differs"] == ""
    other = """{ epochs = 10.0, optimizer = { name = "adamw", betas = [0.9, 0.95] }, decay = "cosine", warmup = 500,
      clip = 1.0, loss_lr = 10.0, decay_norms = false, per_class = 4 }""".replace("\n", " ")
    row = results(read_suite, PROTOCOL.replace("PROTOCOL", other)).published.iloc[0]
    assert row["differs"].split("; ") == [
        "epochs 10 in the paper, 0.08 here",
        "optimizer adamw[betas=(0.9 0.95)] in the paper, sgd here",
        "decay cosine in the paper, constant here",
        "warmup 500 in the paper, 0 here",
        "clip 1 in the paper, none here",
        "loss_lr 10 in the paper, 1 here",
        "decay_norms false in the paper, true here",
        "per_class 4 in the paper, none here",
    ]


def test_numbers_without_a_protocol_are_never_failures(read_suite):
    row = results(read_suite, 'published = { "softmax" = 99.9 }\n').published.iloc[0]
    assert (row["verdict"], row["differs"]) == ("not comparable", "the paper's protocol is not stated")


def test_a_warm_start_counts_among_the_steps(read_suite):
    warm = 'warm_start = { loss = "softmax", steps = 4 }\n' + PROTOCOL.replace("PROTOCOL", "{ steps = 10 }")
    assert results(read_suite, warm, 0.3).published.iloc[0]["verdict"] == "reproduced"


def test_a_backbone_may_be_in_the_papers_own_words(read_suite):
    for words in ("VGG (10 layers)", "vgg"):
        row = results(read_suite, PROTOCOL.replace("PROTOCOL", f'{{ backbone = "{words}" }}')).published.iloc[0]
        assert row["differs"].startswith(f"backbone {words} in the paper, cnn")


def test_a_profile_of_another_scale_is_not_of_the_same_protocol(read_suite):
    text = SEEDS + PROTOCOL.replace("PROTOCOL", '"same"')
    text += "[profile.short.all]\nschedule = { steps = 3 }\n[profile.few.all]\nseeds = 6\n"
    found = {}
    for profile in ("short", "few"):
        suite = read_suite(text, profile)
        results = analysed(suite, lambda cell: Truth(90 + 0.3 * common(cell.seed)))
        found[profile] = results.published.iloc[0]
    assert (found["short"]["verdict"], found["short"]["differs"]) == (
        "not comparable",
        "another scale here: profile short",
    )
    assert found["few"]["verdict"] in ("reproduced", "underpowered")


@pytest.mark.parametrize("value", ["nan", "-1.0", "101.0"])
def test_a_published_accuracy_is_a_percentage(value, read_suite):
    with pytest.raises(SuiteError, match="published"):
        read_suite(SEEDS + f'published = {{ "softmax" = {value} }}\n')


def test_an_option_of_the_backbone_that_the_paper_does_not_state_is_a_difference(read_suite):
    row = results(read_suite, PROTOCOL.replace("PROTOCOL", '{ backbone = "cnn[channels=4]" }')).published.iloc[0]
    assert (row["verdict"], row["differs"]) == (
        "not comparable",
        "backbone depths as in cnn[channels=4] in the paper, 1 here",
    )


def test_the_report_shows_verdict_and_difference(read_suite):
    (table,) = published(results(read_suite, PROTOCOL.replace("PROTOCOL", '"same"'))).blocks
    shown = dict(zip(table.columns, table.rows[0], strict=True))
    assert shown["published, %"] == "90.20" and shown["verdict"] in ("reproduced", "underpowered", "above", "below")


def test_where_no_number_is_comparable_one_line_says_so_and_why(read_suite):
    (line,) = published(results(read_suite, PROTOCOL.replace("PROTOCOL", "{ steps = 12000 }"))).blocks
    assert "None of the 1 published numbers is comparable" in line.text
    assert "steps 12,000 in the paper, 6 here (1)" in line.text


@pytest.mark.parametrize(
    ("published", "expected"),
    [
        ("published = { values = { center = 99.0 } }\n", ["published.values", "no cell produces 'center'"]),
        ('published = { values = { softmax = "x" } }\n', ["experiment.digits.published", "'x'"]),
        ("published = { values = { softmax = 1.0 }, protocol = { step = 5 } }\n", ["published.protocol", "'steps'"]),
        ('published = { values = { softmax = 1.0 }, protocol = "sane" }\n', ["published.protocol", "'same'"]),
    ],
)
def test_a_wrong_table_is_refused_with_its_place(published, expected, read_suite):
    with pytest.raises(SuiteError) as refused:
        read_suite(SEEDS + published)
    for part in expected:
        assert part in str(refused.value), str(refused.value)


def test_a_plan_of_before_is_still_read(tmp_path, read_suite):
    """plan.json once held published numbers as plain values, and no counts of examples."""
    import json

    suite = read_suite(SEEDS + 'published = { "softmax" = 90.2 }\n')
    run = write_run(suite, tmp_path, lambda cell: Truth(90 + common(cell.seed)))
    plan = json.loads((run / "plan.json").read_text())
    plan["suite"]["published"] = {"digits": {"softmax": 90.2}}
    del plan["suite"]["examples"], plan["suite"]["looks"]
    (run / "plan.json").write_text(json.dumps(plan))
    assert analyse([run]).published.iloc[0]["published"] == 90.2
    assert np.isfinite(analyse([run]).published.iloc[0]["low"])


def test_a_table_may_belong_to_one_number_of_classes(read_suite):
    ks = SEEDS.replace("seeds = 8", "seeds = 8\nclasses = [4, 6]")
    assert ks != SEEDS
    tables = "".join(f"{{ classes = {k}, values = {{ softmax = {80.0 + k} }}, protocol = 'same' }}, " for k in (4, 6))
    suite = read_suite(ks + f"published = [{tables}]\n")
    found = analysed(suite, lambda cell: Truth(90 + common(cell.seed))).published
    assert sorted(zip(found["classes"], found["published"], strict=True)) == [(4, 84.0), (6, 86.0)]
    with pytest.raises(SuiteError, match=r"published\[0\].classes: 5 is not among .*; known: 4, 6"):
        read_suite(ks + "published = [{ classes = 5, values = { softmax = 1.0 } }]\n")
    with pytest.raises(SuiteError, match=r"published\[1\].values: .*no cell produces 'center'"):
        read_suite(ks + "published = [{ values = { softmax = 1.0 } }, { values = { center = 1.0 } }]\n")
