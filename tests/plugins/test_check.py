"""`lossbench check`: every built-in plugin passes; variants, explanations, processes that hang or crash."""

import random
import time

import numpy as np
import pytest
import torch
from conftest import alive
from kit.commands import invoke
from kit.sound_loss import CHECK, LOGITS, SCORES, SETUP, SOUND, TARGET, failures, plugin, statuses

from lossbench.core.errors import PluginError
from lossbench.data.check import check_dataset
from lossbench.plugins.check import acting, check, check_apart, check_names
from lossbench.plugins.check.margin import EXCUSABLE
from lossbench.plugins.check.subject import Subject, isolated
from lossbench.plugins.registry import Plugin, Registry
from lossbench.plugins.scaffold import new


@pytest.mark.parametrize("name", Registry().names("loss"))
def test_every_built_in_loss_passes(name):
    assert failures(check(Registry().find("loss", name))) == {}


def test_the_sound_loss_of_these_tests_passes_everything_that_applies_to_it(tmp_path):
    found = statuses(check(plugin(tmp_path)))
    assert "fail" not in found.values()
    assert [name for name, status in found.items() if status == "skip"] == ["ranges", "margin off"]


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
    with pytest.raises(PluginError, match=r"no such file; did you mean '.*subject\.py'"):
        check_names(Registry(), [str(tmp_path / "subjekt.py")])
    with pytest.raises(PluginError, match="no such file"):
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


@pytest.mark.slow
@pytest.mark.parametrize("name", Registry().names("loss"))
def test_an_idle_option_in_any_built_in_loss_is_caught_and_named(tmp_path, name):
    source = Registry().find("loss", name).path.read_text(encoding="utf-8")
    signature = "classes: int, *, " if "classes: int, *, " in source else "        *,\n"
    added = signature + ("idle: float = 1.0, " if "," in signature[:-4] else "        idle: float = 1.0,\n")
    with isolated():
        sentence = acting.options_act(Subject(plugin(tmp_path, (signature, added), source=source), Registry()))
    assert sentence.startswith("option idle changes nothing") and " | " not in sentence


ENDS = {
    "an endless import": ("loads", "while True: pass\n\n\n", None, "did not finish within 2 seconds"),
    "an exit at import": ("loads", "import os; os._exit(7)\n\n\n", None, "exit code 7"),
    "an endless forward": ("runs", "", "__import__('time').sleep(600)", "did not finish within 2 seconds"),
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
    found = failures(check_apart(subject, Registry(), seconds=2))
    assert set(found) == {expected} and said in found[expected]
    assert time.monotonic() - started < 60


def test_what_a_hanging_loss_has_started_is_ended_with_it(tmp_path):
    started = f"import subprocess\nopen({str(tmp_path / 'pid')!r}, 'w').write("
    started += "str(subprocess.Popen(['sleep', '600']).pid))\nimport time; time.sleep(600)\n\n\n"
    check_apart(plugin(tmp_path, ("class Loss(nn.Module):", started + "class Loss(nn.Module):")), Registry(), seconds=2)
    pid = int((tmp_path / "pid").read_text())
    deadline = time.monotonic() + 10
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(pid)


def test_a_check_apart_finds_what_a_check_here_finds(tmp_path):
    subject = plugin(tmp_path)
    assert check_apart(subject, Registry()) == check(subject)


def test_the_command_names_a_loss_that_crashes_and_checks_the_others(tmp_path):
    crash = ("class Loss(nn.Module):", "import ctypes; ctypes.string_at(0)\n\n\nclass Loss(nn.Module):")
    path = plugin(tmp_path, crash).path
    done = invoke("check", path, "softmax")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert "SIGSEGV" in done.stdout
    lines = done.stdout.splitlines()
    assert any(line.startswith(str(path)) and "1 fail" in line for line in lines)
    assert any(line.startswith("softmax") and "pass" in line and "fail" not in line for line in lines)


BACKBONES = {
    "another width": (
        "runs",
        "return self.fc(self.body(images).mean(dim=(2, 3)))",
        "return self.body(images).mean(dim=(2, 3))",
    ),
    "an unused layer": ("runs", "        self.body =", "        self.idle = nn.Linear(2, 2)\n        self.body ="),
    "another name": ("last layer", "self.fc", "self.head"),
    "a seed of its own": ("deterministic", "        layers = []", "        torch.seed()\n        layers = []"),
    "statistics of the batch": ("one by one", "self.body(images)", "self.body(images - images.mean())"),
    "no default": ("options", "channels: int = 16", "channels: int"),
}


@pytest.mark.parametrize("fault", BACKBONES)
def test_a_fault_in_a_backbone_is_caught(tmp_path, fault):
    expected, old, new_ = BACKBONES[fault]
    path = new("backbone", "mine", tmp_path)
    assert failures(check_names(Registry(), [str(path)])[str(path)]) == {}
    path.write_text(path.read_text().replace(old, new_))
    assert expected in failures(check(Plugin("backbone", "mine", path)))


@pytest.mark.parametrize("name", ["cnn", "mlp"])
def test_the_built_in_backbones_pass(name):
    assert failures(check(Registry().find("backbone", name))) == {}


DATASETS = {
    "float images": (".astype(np.uint8)", "", "images must be uint8"),
    "labels from 1": (
        "splits.append(Split.of(",
        "labels = labels + 1\n        splits.append(Split.of(",
        "labels from 1 to 4",
    ),
    "chance": ("default_rng(seed)", "default_rng()", "different arrays"),
    "no default": ("noise: float = 0.5", "noise: float", ""),
}


@pytest.mark.parametrize("fault", DATASETS)
def test_a_fault_in_a_dataset_is_caught(tmp_path, fault):
    old, new_, said = DATASETS[fault]
    path = new("dataset", "mine", tmp_path)
    path.write_text(path.read_text().replace(old, new_))
    findings = check_names(Registry(), [str(path)], others={"dataset": check_dataset})[str(path)]
    if said:
        assert [said in finding.sentence for finding in findings if finding.status == "fail"] == [True]
    else:
        assert statuses(findings) == {"loads": "skip"}


@pytest.mark.parametrize(("labels", "status"), [("labels", "pass"), ("np.arange(len(labels))", "fail")])
def test_a_dataset_is_loaded_for_every_task_that_it_names(tmp_path, labels, status):
    path = new("dataset", "mine", tmp_path)
    task = 'noise: float = 0.5, task: Literal["classification", "retrieval"] = "classification"'
    unseen = f"    if task == 'retrieval': splits[1] = Split.of(splits[1].images, {labels})\n    return Dataset("
    text = path.read_text().replace("import numpy", "from typing import Literal\nimport numpy", 1)
    path.write_text(text.replace("noise: float = 0.5", task).replace("    return Dataset(", unseen))
    checked = check_names(Registry(), [str(path)], others={"dataset": check_dataset})[str(path)]
    found = {one.property: one for one in checked}
    assert found["loads"].status == "pass" and found["retrieval"].status == status
    said = "100 test images of 4 unseen classes, 0 of them alone" if status == "pass" else "of at most 1 images"
    assert said in found["retrieval"].sentence
