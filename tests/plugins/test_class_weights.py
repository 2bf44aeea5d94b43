"""Class weights go by their role, whatever a loss calls them; a loss without any is told so, and so is its reader."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from conftest import SMALL

from lossbench.core.errors import PluginError, SuiteError
from lossbench.data import data_folder, load_dataset
from lossbench.plan.cells import plan
from lossbench.plugins.registry import Plugin, Registry
from lossbench.training import cell as train
from lossbench.training.batches import Batches
from lossbench.training.state import build

PROXIES = '''"""Cosines to proxies that an inner module owns."""
import torch
import torch.nn.functional as F
from torch import nn

DECLARED


class Inner(nn.Module):
    def __init__(self, shape):
        super().__init__()
        self.proxies = nn.Parameter(torch.randn(shape))
        self.bias = nn.Parameter(torch.zeros(shape[0]))


class Loss(nn.Module):
    def __init__(self, features: int, classes: int, *, s: float = 8.0) -> None:
        super().__init__()
        self.s = s
        self.inner = Inner(SHAPE)

    def logits(self, features):
        return self.s * F.linear(F.normalize(features), F.normalize(self.inner.proxiesROWS))

    def forward(self, features, labels):
        return F.cross_entropy(self.logits(features), labels)
'''


def write(folder, declared, shape="(classes, features)", rows=""):
    path = folder / "losses" / "proxies.py"
    path.parent.mkdir(exist_ok=True)
    source = PROXIES.replace("DECLARED", declared).replace("SHAPE", shape).replace("ROWS", rows)
    path.write_text(source, encoding="utf-8")
    return Registry([folder])


def suite_text(width=8, warm="softmax"):
    text = SMALL.replace('"w_softmax"]', '"proxies"]').replace("widths = [8]", f"widths = [{width}]")
    return text + f'warm_start = {{ loss = "{warm}", steps = 5 }}\n'


def warmed(registry, read_suite, width=8, warm="softmax"):
    """A trained warm start and the cell of `proxies` that refines it."""
    cells = plan(read_suite(suite_text(width, warm), plugins=registry))
    digits = load_dataset("digits")
    first = build(cells[0], cells[0].loss, registry, digits.in_shape)
    train.train(first, Batches(digits.train, 16, 0), cells[0], digits)
    cell = next(cell for cell in cells if cell.kind == "train" and cell.loss.name == "proxies")
    return first, cell, build(cell, cell.loss, registry, digits.in_shape)


@pytest.mark.parametrize("width", [8, 10])  # 10 is the number of classes: the shape does not tell the layouts apart
@pytest.mark.parametrize("turned", [False, True])
def test_named_class_weights_start_from_those_of_the_warm_start_with_their_momentum(
    tmp_path, read_suite, width, turned
):
    layout = ("(features, classes)", ".T") if turned else ("(classes, features)", "")
    registry = write(tmp_path, f'CLASS_WEIGHTS = "inner.proxies{layout[1]}"', *layout)
    first, _, fresh = warmed(registry, read_suite, width)
    assert fresh.refine(first.checkpoint()) is None
    proxies, weight = fresh.loss.inner.proxies, first.loss.weight
    momentum = first.optimizer.state[weight]["momentum_buffer"]
    assert torch.equal(proxies, weight.T if turned else weight)
    assert torch.equal(fresh.optimizer.state[proxies]["momentum_buffer"], momentum.T if turned else momentum)


def test_class_weights_travel_back_from_a_loss_that_names_them_otherwise(tmp_path, read_suite):
    registry = write(tmp_path, 'CLASS_WEIGHTS = "inner.proxies.T"', "(features, classes)", ".T")
    cells = plan(read_suite(suite_text(warm="proxies"), plugins=registry))
    digits = load_dataset("digits")
    first, fresh = (build(cell, cell.loss, registry, digits.in_shape) for cell in (cells[0], cells[1]))
    assert (cells[0].loss.name, cells[1].loss.name) == ("proxies", "softmax")
    assert fresh.refine(first.checkpoint()) is None
    assert torch.equal(fresh.loss.weight, first.loss.inner.proxies.T)


def test_a_parameter_of_another_role_is_not_overwritten_because_it_is_called_weight(tmp_path, read_suite):
    write(tmp_path, 'CLASS_WEIGHTS = "inner.proxies"')
    path = tmp_path / "losses" / "proxies.py"
    added = "self.weight = nn.Parameter(torch.ones(classes, features))\n        self.s = s\n"
    path.write_text(path.read_text().replace("self.s = s\n", added))
    first, _, fresh = warmed(Registry([tmp_path]), read_suite)
    fresh.refine(first.checkpoint())
    assert torch.equal(fresh.loss.inner.proxies, first.loss.weight)
    assert torch.equal(fresh.loss.weight, torch.ones(10, 8))


def test_fixed_class_weights_are_not_overwritten(tmp_path, read_suite):
    write(tmp_path, 'CLASS_WEIGHTS = "inner.proxies"')
    path = tmp_path / "losses" / "proxies.py"
    fixed = 'self.register_buffer("proxies", torch.eye(*shape))'
    path.write_text(path.read_text().replace("self.proxies = nn.Parameter(torch.randn(shape))", fixed))
    first, _, fresh = warmed(Registry([tmp_path]), read_suite)
    assert "fixed" in fresh.refine(first.checkpoint())
    assert torch.equal(fresh.loss.inner.proxies, torch.eye(10, 8))


def test_angles_geometry_and_memory_are_those_of_the_named_class_weights(tmp_path, read_suite):
    registry = write(tmp_path, 'CLASS_WEIGHTS = "inner.proxies.T"', "(features, classes)", ".T")
    first, cell, fresh = warmed(registry, read_suite)
    record = train.run(cell, registry, data_folder(), _bytes(first)).record
    assert record.flags == () and all(0 < angle < 180 for angle in record.angles["test"])
    fresh.refine(first.checkpoint())
    digits = load_dataset("digits")
    train.train(fresh, Batches(digits.train, cell.schedule.batch, cell.seed), cell, digits)
    rows = fresh.loss.inner.proxies.detach().T.double().numpy()
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    pairs = np.degrees(np.arccos((rows @ rows.T)[np.triu_indices(10, 1)]))
    assert record.geometry["weight_angle"] == pytest.approx(pairs.mean())
    assert record.bytes["classifier"] == 4 * (10 * 8 + 8) and record.bytes["loss"] == 0


def _bytes(state) -> bytes:
    import io

    file = io.BytesIO()
    torch.save(state.checkpoint(), file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("declared", "said"),
    [("", "declares no CLASS_WEIGHTS"), ("CLASS_WEIGHTS = None", "declares CLASS_WEIGHTS = None")],
)
def test_a_cell_whose_loss_received_no_class_weights_says_so(tmp_path, read_suite, capsys, declared, said):
    registry = write(tmp_path, declared)
    first, cell, _ = warmed(registry, read_suite)
    record = train.run(cell, registry, data_folder(), _bytes(first)).record
    assert record.flags == ("cold classifier",)
    assert record.angles["test"] == [] and record.geometry["weight_angle"] is None
    assert said in capsys.readouterr().out


def test_class_weights_of_another_shape_are_told_with_both_shapes(read_suite, registry):
    text = SMALL.replace('"w_softmax"]', '"subcenter_arcface"]') + "warm_start = { steps = 5 }\n"
    cells = plan(read_suite(text))
    shape = load_dataset("digits").in_shape
    first, fresh = (build(cell, cell.loss, registry, shape) for cell in (cells[0], cells[2]))
    assert fresh.refine(first.checkpoint()) == (
        "class weights of shape (10, 8) do not fit into those of shape (3, 10, 8)"
    )


def test_a_loss_that_refines_itself_is_not_cold_whatever_its_weights_are_called(tmp_path, read_suite):
    first, _, fresh = warmed(write(tmp_path, ""), read_suite, warm="proxies")
    assert fresh.refine(first.checkpoint()) is None
    assert torch.equal(fresh.loss.inner.proxies, first.loss.inner.proxies)


WRONG = {
    "names nothing": ('CLASS_WEIGHTS = "inner.proxy"', "(classes, features)", "", "did you mean 'inner.proxies'?"),
    "columns": (
        'CLASS_WEIGHTS = "inner.proxies"',
        "(features, classes)",
        ".T",
        'write CLASS_WEIGHTS = "inner.proxies.T"',
    ),
    "sub-centres": (
        'CLASS_WEIGHTS = "inner.proxies"',
        "(2 * classes, features)",
        ".unflatten(0, (2, -1)).mean(0)",
        "writes CLASS_WEIGHTS = None",
    ),
    "a number": ("CLASS_WEIGHTS = 3", "(classes, features)", "", "must be the dotted name of a parameter"),
    "computed": ('CLASS_WEIGHTS = "inner." + "proxies"', "(classes, features)", "", "must be a literal"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_class_weights_are_an_error_of_the_cell_and_a_failure_of_check(tmp_path, read_suite, case):
    from lossbench.plugins.check import check

    *written, said = WRONG[case]
    registry = write(tmp_path, *written)
    cell = next(cell for cell in plan(read_suite(suite_text(), plugins=registry)) if cell.loss.name == "proxies")
    with pytest.raises(PluginError) as error:
        build(cell, cell.loss, registry, (1, 8, 8))
    assert said in str(error.value)
    failures = {
        finding.property: finding.sentence
        for finding in check(registry.find("loss", "proxies"))
        if finding.status == "fail"
    }
    assert said in failures.get("class weights", failures.get("declarations", ""))


CLAIM = """
[[claim]]
text = "Proxies stand apart"
experiment = "digits"
better = "proxies"
than = "softmax"
metric = "weight_angle"
"""


@pytest.mark.parametrize("declared", ["", "CLASS_WEIGHTS = None"])
def test_a_claim_on_angles_of_a_loss_without_class_weights_is_refused_as_the_suite_is_read(
    tmp_path, read_suite, declared
):
    registry = write(tmp_path, declared)
    with pytest.raises(SuiteError) as error:
        read_suite(suite_text() + CLAIM, plugins=registry)
    assert "claim[0]: is about 'weight_angle'" in str(error.value)
    assert "loss 'proxies' has none" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_claim_on_angles_of_named_class_weights_is_accepted(tmp_path, read_suite):
    registry = write(tmp_path, 'CLASS_WEIGHTS = "inner.proxies"')
    assert read_suite(suite_text() + CLAIM, plugins=registry).info.claims


def test_what_only_building_the_loss_can_tell_is_refused_before_training(tmp_path, lossbench):
    """Three weights per class: the file assigns self.weight, and only its shape shows that no angle can be measured."""
    claim = CLAIM.replace("proxies", "subcenter_arcface").replace("Proxies", "Sub-centres")
    (tmp_path / "suite.toml").write_text(SMALL.replace('"w_softmax"]', '"subcenter_arcface"]') + claim)
    found = lossbench("run", "suite.toml")
    assert found.returncode == 2 and "Traceback" not in found.stderr
    assert "claim 'Sub-centres stand apart' is about 'weight_angle'" in found.stderr
    assert "loss 'subcenter_arcface' has none" in found.stderr
    assert not list((tmp_path / "runs").glob("*/cells/*")) if (tmp_path / "runs").exists() else True


def test_a_claim_on_test_angles_of_a_verification_is_refused(read_suite):
    text = """
name = "v"
[[experiment]]
name = "pairs"
task = "verification"
dataset = { name = "glyphs" }
backbone = "mlp"
widths = [8]
losses = ["softmax", "arcface"]
seeds = 2
schedule = { steps = 6, batch = 16 }
[[claim]]
text = "narrow"
experiment = "pairs"
better = "arcface"
than = "softmax"
metric = "angle"
"""
    with pytest.raises(SuiteError, match="did you mean 'angle_train'"):
        read_suite(text)


@pytest.mark.parametrize("name", Registry().names("loss"))
def test_no_built_in_loss_is_taken_for_one_without_class_weights(name):
    assert not Registry().find("loss", name).weightless


@pytest.mark.parametrize(
    ("body", "base"),
    [
        ("self.weight = nn.Parameter(torch.zeros(classes, features))", "nn.Module"),
        ("self.register_parameter('weight', None)", "nn.Module"),
        ("setattr(self, 'wei' + 'ght', None)", "nn.Module"),
        ("pass", "nn.Linear"),
    ],
)
def test_a_file_that_may_bring_class_weights_is_left_to_be_built(tmp_path, body, base):
    path = tmp_path / "x.py"
    path.write_text(
        f"from torch import nn\nclass Loss({base}):\n    def __init__(self, features, classes):\n        {body}\n"
    )
    assert not Plugin("loss", "x", path).weightless
