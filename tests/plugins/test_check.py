"""The conformance kit: every built-in loss passes, and every kind of fault is caught by the property meant for it."""

import random
import time

import numpy as np
import pytest
import torch
from conftest import alive

from lossbench.core.errors import PluginError
from lossbench.plugins.check import acting, check, check_apart, check_names
from lossbench.plugins.check.margin import EXCUSABLE
from lossbench.plugins.check.subject import Subject, isolated
from lossbench.plugins.registry import Plugin, Registry

# A sound loss, in pieces that a test can replace by broken ones.
SOUND = '''"""A cosine margin, for tests.

Nobody, "A cosine margin", 2018.
"""
import random, time
import torch
import torch.nn.functional as F
from torch import nn
from lossbench.margin import check_labels, full_precision, init_weight, replace_target

MARGIN_OFF = {"margin": 0.0}


class Loss(nn.Module):
    def __init__(self, features: int, classes: int, *, margin: float = 0.3, scale: float = 8.0) -> None:
        super().__init__()
        self.margin, self.scale = margin, scale
        self.weight = init_weight(classes, features)
        self.setup()

    def setup(self):
        pass

    def logits(self, features):
        return self.scale * F.linear(F.normalize(features), F.normalize(self.weight))

    def target(self, score):
        return score - self.scale * self.margin

    def forward(self, features, labels):
        check_labels(labels, len(self.weight))
        scores = full_precision(self.logits(features))
        target = self.target(scores.gather(1, labels[:, None])[:, 0])
        return F.cross_entropy(replace_target(scores, labels, target), labels)
'''


def plugin(folder, *changes, source=SOUND):
    """A plugin file: the sound source with some of its text replaced."""
    for old, new in changes:
        assert source.count(old) == 1, old
        source = source.replace(old, new)
    path = folder / "subject.py"
    path.write_text(source, encoding="utf-8")
    return Plugin("loss", "subject", path)


def failures(findings):
    return {finding.property: finding.sentence for finding in findings if finding.status == "fail"}


def statuses(findings):
    return {finding.property: finding.status for finding in findings}


@pytest.mark.parametrize("name", Registry().names("loss"))
def test_every_built_in_loss_passes(name):
    assert failures(check(Registry().find("loss", name))) == {}


def test_the_sound_loss_of_these_tests_passes_everything_that_applies_to_it(tmp_path):
    found = statuses(check(plugin(tmp_path)))
    assert "fail" not in found.values()
    assert [name for name, status in found.items() if status == "skip"] == ["ranges", "margin off"]


RETURN = "        return F.cross_entropy(replace_target(scores, labels, target), labels)\n"
TARGET = "        return score - self.scale * self.margin\n"
SCORES = "        scores = full_precision(self.logits(features))\n"
SETUP = "    def setup(self):\n        pass\n"
LOGITS = "        return self.scale * F.linear(F.normalize(features), F.normalize(self.weight))\n"
CHECK = "        check_labels(labels, len(self.weight))\n"

BROKEN = {
    "an arc cosine at cosine one": (
        "finite at cosine ±1",
        [
            (
                TARGET,
                "        return self.scale * (torch.cos(torch.acos(score / self.scale)) - self.margin)\n",
            )
        ],
    ),
    "a margin that never reaches the loss": ("margin acts", [(TARGET, "        return score\n")]),
    "a margin that reaches the value alone": (
        "margin acts",
        [(TARGET, "        return score\n"), (RETURN, RETURN.replace(", labels)\n", ", labels) + self.margin\n", 1))],
    ),
    "features changed in place": (
        "inputs untouched",
        [(SCORES, "        features *= 0.5\n" + SCORES)],
    ),
    "labels changed in place": (
        "inputs untouched",
        [(SCORES, "        given = labels\n        labels = labels.clone()\n        given.zero_()\n" + SCORES)],
    ),
    "a schedule advanced in forward": (
        "forward keeps state",
        [
            (SETUP, "    def setup(self):\n        self.register_buffer('t', torch.zeros(()))\n"),
            (
                TARGET,
                "        self.t += 1\n        return score - self.scale * self.margin / (1 + 1 / float(self.t))\n",
            ),
        ],
    ),
    "a schedule that the state_dict forgets": (
        "state round trip",
        [
            (SETUP, "    def setup(self):\n        self.t = 0\n\n    def advance(self):\n        self.t += 1\n"),
            (TARGET, "        return score - self.scale * self.margin / (1 + 1 / (1 + self.t))\n"),
        ],
    ),
    "a pace that the state_dict forgets": (
        "state round trip",
        [
            (
                SETUP,
                "    def setup(self):\n        self.pace = 1.0\n        self.register_buffer('t', torch.zeros(()))\n\n"
                "    def begin(self, steps):\n        self.pace = 1 / steps\n\n"
                "    def advance(self):\n        self.t += 1\n",
            ),
            (TARGET, "        return score - self.scale * self.margin / (1 + 1 / (1 + self.pace * float(self.t)))\n"),
        ],
    ),
    "logits that remember the labels": (
        "prediction",
        [
            (SETUP, "    def setup(self):\n        self.last = None\n"),
            (
                LOGITS,
                LOGITS.replace("return ", "scores = ") + "        if self.last is not None and not self.training:\n"
                "            scores[:, self.last] += 1\n        return scores\n",
            ),
            (CHECK, CHECK + "        self.last = int(labels[0])\n"),
        ],
    ),
    "logits with the margin in them": (
        "prediction",
        [(LOGITS, LOGITS.rstrip("\n") + " - (0 if self.training else self.margin)\n")],
    ),
    "a tensor of B×C×M": (
        "step memory",
        [
            (
                SCORES,
                "        unit = F.normalize(self.weight)\n        spread = F.normalize(features)[:, None] * unit\n"
                "        scores = full_precision(self.scale * spread.sum(2))\n",
            )
        ],
    ),
    "a loss that gives up at many classes": (
        "many classes",
        [(SCORES, SCORES + "        if len(self.weight) > 5000:\n            raise MemoryError('too many')\n")],
    ),
    "labels of −100 silently ignored": ("bad labels", [(CHECK, "")]),
    "labels refused by an assertion": (
        "bad labels",
        [
            (
                CHECK,
                "        assert labels.dtype == torch.int64 and 0 <= labels.min() <= labels.max() < len(self.weight)\n",
            )
        ],
    ),
    "a zero feature divided by its norm": (
        "finite at zero",
        [(LOGITS, LOGITS.replace("F.normalize(features)", "features / features.norm(dim=1, keepdim=True)"))],
    ),
    "a square root at equal features": (
        "finite at opposite weights",
        [
            (
                RETURN,
                "        gap = (F.normalize(self.weight)[0] + F.normalize(self.weight)[1]).square().sum().sqrt()\n"
                "        pull = gap if len(self.weight) == 2 else 0.0\n" + RETURN.rstrip("\n") + " + pull\n",
            ),
        ],
    ),
    "an overflow at large features": (
        "finite at any length",
        [(RETURN, RETURN.rstrip("\n") + " + 1e-6 * features.norm(dim=1).pow(7).mean().log1p()\n")],
    ),
    "a deviation over a batch of one": (
        "finite for one example",
        [
            (
                TARGET,
                "        return score - self.scale * self.margin * (1 + 0 * score.std().detach())\n",
            )
        ],
    ),
    "tensors of one precision only": (
        "finite in bfloat16",
        [
            (
                SCORES,
                "        scores = full_precision(self.logits(features))\n"
                "        if features.dtype != self.weight.dtype:\n            raise RuntimeError('mixed dtypes')\n",
            )
        ],
    ),
    "a value that no seed decides": (
        "deterministic",
        [(RETURN, RETURN.rstrip("\n") + " * (1 + 1e-3 * random.SystemRandom().random())\n")],
    ),
    "the first example weighs more": (
        "batch order",
        [(RETURN, RETURN.rstrip("\n") + " + F.cross_entropy(scores[:1], labels[:1])\n")],
    ),
    "the first class weighs more": (
        "class order",
        [(RETURN, RETURN.rstrip("\n") + " * (1 + 0.1 * labels.float().mean())\n")],
    ),
    "a detached target": ("gradient", [(TARGET, TARGET.replace("score -", "score.detach() * 0.5 + score * 0.5 -"))]),
    "a target detached only where there are more classes than examples": (
        "gradient",
        [
            (
                TARGET,
                "        if 1 < len(score) < len(self.weight):\n            score = score.detach()\n" + TARGET,
            )
        ],
    ),
    "a stray copy of the features": (
        "owned memory",
        [(CHECK, CHECK + "        self.last = features.detach()\n")],
    ),
    "a stray tensor in a list with its graph": (
        "owned memory",
        [
            (SETUP, "    def setup(self):\n        self.seen = []\n"),
            (SCORES, SCORES + "        self.seen.append({'a': scores})\n"),
        ],
    ),
    "a buffer that grows": (
        "owned memory",
        [
            (
                SETUP,
                "    def setup(self):\n        self.register_buffer('log', torch.zeros(0), persistent=False)\n\n"
                "    def advance(self):\n        self.log = torch.cat([self.log, self.log.new_zeros(1)])\n",
            )
        ],
    ),
    "a target that rises again": (
        "grows with the angle",
        [
            (
                TARGET,
                "        cosine = score / self.scale\n        return self.scale * (cosine.clamp_min(-0.5)"
                " - (cosine + 0.5).clamp_max(0)"
                " - self.margin)\n",
            )
        ],
    ),
    "a target that jumps": (
        "continuous",
        [(TARGET, "        return score - self.scale * (self.margin + 0.1 * (score < 0))\n")],
    ),
    "a margin that cannot be turned off": (
        "margin off",
        [
            (
                'MARGIN_OFF = {"margin": 0.0}',
                'MARGIN_OFF = {"margin": 0.0}\nMARGIN_OFF_EQUALS = "softmax[normalize=true]"',
            )
        ],
    ),
    "a file without a docstring": (
        "docstring",
        [('"""A cosine margin, for tests.\n\nNobody, "A cosine margin", 2018.\n"""', "")],
    ),
    "a summary of two lines": ("docstring", [("for tests.\n\n", "for tests.\n")]),
    "an option without a type": ("options", [("scale: float = 8.0", "scale=8.0")]),
    "a default that is not a literal": ("loads", [("scale: float = 8.0", "scale: float = 2.0**3")]),
    "nonsense refused by an assertion": (
        "options",
        [
            (
                "        self.margin, self.scale = margin, scale\n",
                "        assert margin < 1e6\n        self.margin, self.scale = margin, scale\n",
            )
        ],
    ),
    "a declared option that is not there": (
        "declarations",
        [('MARGIN_OFF = {"margin": 0.0}', 'MARGIN_OFF = {"marign": 0.0}')],
    ),
    "a declaration that is not a literal": (
        "declarations",
        [('MARGIN_OFF = {"margin": 0.0}', "MARGIN_OFF = dict(margin=0.0)")],
    ),
    "an excuse for what has none": (
        "declarations",
        [('MARGIN_OFF = {"margin": 0.0}', 'BY_DESIGN = {"bad labels": "lazy"}')],
    ),
    "a loss for each example": ("runs", [(RETURN, RETURN.replace("labels)\n", 'labels, reduction="none")\n'))]),
    "an option that nothing reads": (
        "options act",
        [("scale: float = 8.0", "scale: float = 8.0, temper: float = 1.0")],
    ),
    "an option that only ends up in a buffer": (
        "options act",
        [
            ("scale: float = 8.0", "scale: float = 8.0, temper: float = 1.0"),
            (
                "        self.margin, self.scale = margin, scale\n",
                "        self.margin, self.scale = margin, scale\n"
                "        self.register_buffer('temper', torch.tensor(temper))\n",
            ),
        ],
    ),
    "a choice that nothing reads": (
        "options act",
        [
            ("scale: float = 8.0", "scale: float = 8.0, form: Literal['a', 'b'] = 'a'"),
            ("import random, time\n", "import random, time\nfrom typing import Literal\n"),
        ],
    ),
    "a second margin that never reaches the loss": (
        "options act",
        [
            ('MARGIN_OFF = {"margin": 0.0}', 'MARGIN_OFF = {"margin": 0.0, "spread": 0.0}'),
            ("scale: float = 8.0", "scale: float = 8.0, spread: float = 0.1"),
        ],
    ),
    "class weights that stand in columns": (
        "class weights",
        [
            (
                "self.weight = init_weight(classes, features)",
                "self.weight = nn.Parameter(init_weight(classes, features).detach().T.clone())",
            ),
            ("F.normalize(self.weight))", "F.normalize(self.weight.T))"),
            ("len(self.weight)", "self.weight.shape[1]"),
        ],
    ),
    "class weights that are not there": (
        "class weights",
        [('MARGIN_OFF = {"margin": 0.0}', 'MARGIN_OFF = {"margin": 0.0}\nCLASS_WEIGHTS = "wieght"')],
    ),
    "a file that is not Python": ("loads", [("class Loss(nn.Module):", "class Loss(nn.Module:")]),
    "a file that fails on import": ("loads", [("class Loss(nn.Module):", "1 / 0\n\n\nclass Loss(nn.Module):")]),
    "a file that leaves the program": (
        "loads",
        [("class Loss(nn.Module):", "raise SystemExit\n\n\nclass Loss(nn.Module):")],
    ),
    "a file without a Loss": ("loads", [("class Loss(nn.Module):", "class Lost(nn.Module):")]),
    "a Loss that is no module": (
        "loads",
        [("class Loss(nn.Module):", "class Loss:"), ("        super().__init__()\n", "")],
    ),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_fault_is_caught_by_the_property_meant_for_it_and_by_no_other(tmp_path, fault):
    expected, changes = BROKEN[fault]
    found = failures(check(plugin(tmp_path, *changes)))
    assert set(found) == {expected}, found
    assert found[expected].strip()
    assert "\n" not in found[expected]


def test_a_plugin_that_raises_gives_a_sentence_with_the_error(tmp_path):
    found = failures(check(plugin(tmp_path, (SCORES, "        raise TypeError('no such thing')\n"))))
    assert found == {"runs": "raises TypeError: no such thing"}


def test_a_fault_in_one_choice_of_an_option_is_caught_and_named(tmp_path):
    switch = ("scale: float = 8.0", "scale: float = 8.0, safe: bool = True")
    keep = (
        "        self.margin, self.scale = margin, scale\n",
        "        self.margin, self.scale, self.safe = margin, scale, safe\n",
    )
    excuse = (
        'MARGIN_OFF = {"margin": 0.0}',
        'MARGIN_OFF = {"margin": 0.0}\nBY_DESIGN = {"option safe": "it only checks"}',
    )
    found = failures(check(plugin(tmp_path, switch, keep, excuse, (CHECK, "        if self.safe:\n    " + CHECK))))
    assert set(found) == {"bad labels"}
    assert found["bad labels"].startswith("with safe=false: ")


def test_a_deviation_by_design_is_a_fact_with_its_explanation(tmp_path):
    detached = (TARGET, TARGET.replace("score -", "score.detach() * 0.5 + score * 0.5 -"))
    excuse = (
        'MARGIN_OFF = {"margin": 0.0}',
        'MARGIN_OFF = {"margin": 0.0}\nBY_DESIGN = {"gradient": "half is constant"}',
    )
    findings = check(plugin(tmp_path, detached, excuse))
    assert failures(findings) == {}
    (gradient,) = (finding for finding in findings if finding.property == "gradient")
    assert gradient.status == "fact"
    assert gradient.sentence.endswith("by design: half is constant")


def test_the_exact_gradient_of_w_softmax_has_no_excuse_though_its_variants_have():
    excuses = Registry().find("loss", "w_softmax").constants["BY_DESIGN"]
    assert "gradient" not in excuses
    assert all(name.partition("[")[0] in EXCUSABLE for name in excuses)


def test_random_draws_are_a_fact_and_no_fault(tmp_path):
    drawn = (TARGET, "        return score - self.scale * (self.margin + 0.05 * torch.randn_like(score))\n")
    findings = check(plugin(tmp_path, drawn))
    assert failures(findings) == {}
    assert statuses(findings)["batch order"] == "skip"
    assert "draws random numbers" in {finding.sentence for finding in findings if finding.property == "randomness"}


def test_class_weights_may_have_any_layout(tmp_path):
    layouts = {
        "transposed": ("init_weight(classes, features).T", "self.weight.T", "self.weight.shape[1]"),
        "k_by_class": (
            "torch.stack([init_weight(classes, features)] * 2)",
            "self.weight.mean(0)",
            "self.weight.shape[1]",
        ),
        "class_by_k": (
            "init_weight(classes, features)[:, None].repeat(1, 2, 1)",
            "self.weight.mean(1)",
            "self.weight.shape[0]",
        ),
        "rows_of_classes": (
            "init_weight(classes, features).repeat_interleave(2, 0)",
            "self.weight.unflatten(0, (-1, 2)).mean(1)",
            "(len(self.weight) // 2)",
        ),
        "rows_of_copies": (
            "init_weight(classes, features).repeat(2, 1)",
            "self.weight.unflatten(0, (2, -1)).mean(0)",
            "(len(self.weight) // 2)",
        ),
    }
    for name, (made, used, count) in layouts.items():
        declared = "\nCLASS_WEIGHTS = 'weight.T'" if name == "transposed" else ""
        findings = check(
            plugin(
                tmp_path,
                ('MARGIN_OFF = {"margin": 0.0}', 'MARGIN_OFF = {"margin": 0.0}' + declared),
                (
                    "self.weight = init_weight(classes, features)",
                    f"self.weight = nn.Parameter(({made}).detach().clone())",
                ),
                ("F.normalize(self.weight))", f"F.normalize({used}))"),
                ("len(self.weight)", count),
            )
        )
        assert failures(findings) == {}, name
        assert [finding.property for finding in findings if finding.status == "skip"] == ["ranges", "margin off"], name
        assert statuses(findings)["class weights"] == ("pass" if name == "transposed" else "fact"), name


def test_a_loss_without_class_directions_is_not_held_to_what_needs_them(tmp_path):
    source = SOUND.replace(
        "self.weight = init_weight(classes, features)",
        "self.classes = classes\n"
        "        self.body = nn.Sequential(nn.Linear(features, 32), nn.Tanh(), nn.Linear(32, classes))",
    )
    source = source.replace("len(self.weight)", "self.classes").replace(
        LOGITS, "        return self.scale * self.body(features)\n"
    )
    findings = check(plugin(tmp_path, source=source))
    assert failures(findings) == {}
    assert statuses(findings)["finite at cosine ±1"] == "skip"
    (told,) = (finding for finding in findings if finding.property == "class weights")
    assert told.status == "fact"
    assert told.sentence.startswith("has no class weights (it has no parameter 'weight' and declares no CLASS_WEIGHTS)")


def test_the_callers_generators_and_settings_are_left_as_they_were(tmp_path):
    states = [torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()]
    settings = [torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()]
    check(plugin(tmp_path))
    assert torch.equal(torch.get_rng_state(), states[0])
    assert [random.getstate(), np.random.get_state()[1].tolist()] == states[1:]
    assert [torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()] == settings


def test_names_and_paths_may_be_mixed(tmp_path):
    path = str(plugin(tmp_path).path)
    assert list(check_names(Registry(), ["softmax", path])) == ["softmax", path]


def test_an_unknown_name_or_path_is_told_with_the_nearest_one(tmp_path):
    plugin(tmp_path)
    with pytest.raises(PluginError, match="did you mean 'softmax'"):
        check_names(Registry(), ["sofmax"])
    with pytest.raises(PluginError, match=r"there is no such file; did you mean '.*subject\.py'"):
        check_names(Registry(), [str(tmp_path / "subjekt.py")])
    with pytest.raises(PluginError, match="there is no such file"):
        check_names(Registry(), ["no/such/folder/loss.py"])


def test_without_targets_every_loss_in_sight_is_checked(tmp_path, monkeypatch):
    (tmp_path / "losses").mkdir()
    (tmp_path / "losses" / "softmax.py").write_text("another")
    monkeypatch.setattr(Registry, "names", lambda self, kind: ["center", "softmax"])
    found = check_names(Registry([tmp_path]))
    assert list(found) == ["center", "softmax"]
    assert "two plugins claim" in failures(found["softmax"])["loads"]


def test_one_loss_is_checked_in_about_two_seconds(tmp_path):
    subject = plugin(tmp_path)
    check(subject)
    started = time.process_time()
    check(subject)
    assert time.process_time() - started < 3


def test_a_missing_citation_is_a_fact_and_no_fault(tmp_path):
    findings = check(plugin(tmp_path, (", 2018.", ".")))
    assert failures(findings) == {}
    (told,) = (finding for finding in findings if finding.property == "docstring")
    assert (told.status, "cites no source" in told.sentence) == ("fact", True)


def test_an_option_without_effect_may_be_explained_and_is_then_a_fact(tmp_path):
    idle = ("scale: float = 8.0", "scale: float = 8.0, temper: float = 1.0")
    excuse = (
        'MARGIN_OFF = {"margin": 0.0}',
        'MARGIN_OFF = {"margin": 0.0}\nBY_DESIGN = {"option temper": "kept for old suites"}',
    )
    findings = check(plugin(tmp_path, idle, excuse))
    assert failures(findings) == {}
    (told,) = (finding for finding in findings if finding.property == "options act")
    assert told.status == "fact" and told.sentence.endswith("by design: kept for old suites")


def test_an_option_that_acts_only_beside_another_is_found_to_act(tmp_path):
    changes = [
        ("scale: float = 8.0", "scale: float = 8.0, soft: bool = False, eps: float = 0.1"),
        (
            "        self.margin, self.scale = margin, scale\n",
            "        self.margin, self.scale = margin, scale * (eps if soft else 1.0)\n",
        ),
    ]
    assert failures(check(plugin(tmp_path, *changes))) == {}


@pytest.mark.parametrize(
    ("option", "code"),
    [
        ("rate: float = 0.1", "        self.t += self.rate\n"),
        ("after: int = 1000", "        self.t += float(self.rate == 0)\n"),
    ],
)
def test_an_option_that_acts_only_through_the_schedule_is_found_to_act(tmp_path, option, code):
    name = option.partition(":")[0]
    changes = [
        ("scale: float = 8.0", f"scale: float = 8.0, {option}"),
        (
            "        self.margin, self.scale = margin, scale\n",
            f"        self.margin, self.scale, self.rate = margin, scale, {name}\n",
        ),
        (
            SETUP,
            "    def setup(self):\n        self.register_buffer('t', torch.zeros(()))\n\n    def advance(self):\n"
            + code,
        ),
        (TARGET, "        return score - self.scale * self.margin * (1 + float(self.t))\n"),
    ]
    assert failures(check(plugin(tmp_path, *changes))) == {}


@pytest.mark.parametrize("name", Registry().names("loss"))
def test_an_idle_option_in_any_built_in_loss_is_caught_and_named(tmp_path, name):
    source = Registry().find("loss", name).path.read_text(encoding="utf-8")
    signature = "classes: int, *, " if "classes: int, *, " in source else "        *,\n"
    added = signature + ("idle: float = 1.0, " if "," in signature[:-4] else "        idle: float = 1.0,\n")
    with isolated():
        sentence = acting.options_act(Subject(plugin(tmp_path, (signature, added), source=source), Registry()))
    assert sentence.startswith("option idle changes nothing") and " | " not in sentence


CURES = {
    "labels of −100 silently ignored": "call lossbench.margin.check_labels(labels, classes) first in forward",
    "a stray copy of the features": "register_buffer",
    "logits with the margin in them": "leave it out of logits()",
    "an option that nothing reads": 'BY_DESIGN = {"option temper": "…"}',
    "a detached target": 'BY_DESIGN = {"gradient": "…"}',
    "class weights that stand in columns": 'write CLASS_WEIGHTS = "weight.T"',
    "class weights that are not there": "did you mean 'weight'?",
    "nonsense refused by an assertion": 'raise ValueError(f"margin must be …, got {margin}")',
}


@pytest.mark.parametrize("fault", CURES)
def test_a_failure_names_its_cure(tmp_path, fault):
    expected, changes = BROKEN[fault]
    assert CURES[fault] in failures(check(plugin(tmp_path, *changes)))[expected]


ENDS = {
    "an endless import": ("loads", "while True: pass\n\n\n", None, "does not come to an end within 8 seconds"),
    "an exit at import": ("loads", "import os; os._exit(7)\n\n\n", None, "exit code 7"),
    "an endless forward": ("runs", "", "while True: pass", "does not come to an end within 8 seconds"),
    "an exit in forward": ("runs", "", "__import__('os')._exit(0)", "exit code 0"),
    "sys.exit in forward": ("runs", "", "__import__('sys').exit(3)", "raises SystemExit"),
    "an interrupt in forward": ("runs", "", "raise KeyboardInterrupt", "raises KeyboardInterrupt"),
    "a crash in forward": ("runs", "", "__import__('ctypes').string_at(0)", "SIGSEGV"),
}


@pytest.mark.parametrize("case", ENDS)
def test_a_loss_that_hangs_exits_or_crashes_is_a_finding_of_what_was_being_tried(tmp_path, case):
    expected, at_import, in_forward, said = ENDS[case]
    changes = [("class Loss(nn.Module):", at_import + "class Loss(nn.Module):")]
    if in_forward:
        changes.append((SCORES, f"        {in_forward}\n" + SCORES))
    subject = plugin(tmp_path, *changes)
    started = time.monotonic()
    found = failures(check_apart(subject, Registry(), seconds=8))
    assert set(found) == {expected} and said in found[expected]
    assert time.monotonic() - started < 60


def test_what_a_hanging_loss_has_started_is_ended_with_it(tmp_path):
    started = f"import subprocess\nopen({str(tmp_path / 'pid')!r}, 'w').write("
    started += "str(subprocess.Popen(['sleep', '600']).pid))\nwhile True: pass\n\n\n"
    check_apart(plugin(tmp_path, ("class Loss(nn.Module):", started + "class Loss(nn.Module):")), Registry(), seconds=4)
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 10
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(pid)


def test_a_check_apart_finds_what_a_check_here_finds(tmp_path):
    subject = plugin(tmp_path)
    assert check_apart(subject, Registry()) == check(subject)


def test_the_command_names_a_loss_that_crashes_and_checks_the_others(tmp_path, lossbench):
    crash = ("class Loss(nn.Module):", "import ctypes; ctypes.string_at(0)\n\n\nclass Loss(nn.Module):")
    path = plugin(tmp_path, crash).path
    done = lossbench("check", path, "softmax")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "SIGSEGV" in done.stdout
    lines = done.stdout.splitlines()
    assert any(line.startswith(str(path)) and "1 fail" in line for line in lines)
    assert any(line.startswith("softmax") and "pass" in line and "fail" not in line for line in lines)
