"""The losses of the W-Softmax paper, each recomputed from its definition by other means."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import lossbench
from lossbench.margin import psi_and_slope

B, C, M = 12, 7, 5


@pytest.fixture
def batch():
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(B, M, generator=generator, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, C, (B,), generator=generator)
    return features, labels


def make(name, classes=C, features=M, **options):
    torch.manual_seed(1)
    return lossbench.create_loss(name, features, classes, **options).double()


def value_and_gradients(value, features, weight):
    gradients = torch.autograd.grad(value, [features, weight])
    return [value.detach(), *gradients]


def assert_equal(ours, theirs, tolerance=1e-12):
    for mine, other in zip(ours, theirs, strict=True):
        assert torch.allclose(mine, other, rtol=tolerance, atol=tolerance)


# --- softmax


def test_the_papers_example_of_the_growing_norm():
    """The same direction, almost on the boundary, is ever surer of itself as its norm grows (the introduction)."""
    softmax = make("softmax", classes=2, features=2, normalize=True)
    with torch.no_grad():
        softmax.weight.copy_(torch.tensor([[1.0, 0.0], [-1.0, 0.0]]))
    direction = torch.tensor([0.05, math.sqrt(1 - 0.05**2)], dtype=torch.float64)  # cos θ₁ = 0.05, cos θ₂ = −0.05
    for norm, expected in [(1, [0.52, 0.48]), (10, [0.73, 0.27]), (30, [0.95, 0.05]), (50, [0.99, 0.01])]:
        shown = softmax.logits(norm * direction[None]).softmax(1)[0].detach()
        assert [round(float(p), 2) for p in shown] == expected


@pytest.mark.parametrize("options", [{}, {"bias": False}, {"normalize": True}])
def test_softmax_is_the_mean_negative_log_probability(batch, options):
    features, labels = batch
    loss = make("softmax", **options)
    if loss.bias is not None:
        with torch.no_grad():
            loss.bias.copy_(torch.linspace(-1, 1, C))
    weight = loss.weight.detach().numpy()
    if options.get("normalize"):
        weight = weight / np.linalg.norm(weight, axis=1, keepdims=True)
    scores = features.detach().numpy() @ weight.T + (0 if loss.bias is None else loss.bias.detach().numpy())
    expected = np.mean([math.log(np.exp(row).sum()) - row[label] for row, label in zip(scores, labels, strict=True)])
    assert loss(features, labels).item() == pytest.approx(expected, abs=1e-12)


# --- W-Softmax: Algorithm 1 of the paper, sample by sample


def algorithm_1(features, labels, weight, alpha, gradient="exact"):
    total = 0
    unit = weight / weight.norm(dim=1, keepdim=True)
    for x, c in zip(features, labels.tolist(), strict=True):
        true = unit[c]
        scores = []
        for i, rival in enumerate(unit):
            if i == c:
                scores.append(true @ x)
                continue
            lean = {"exact": true, "fixed_bias": true.detach(), "fixed_negatives": true.detach()}[gradient]
            leaning = alpha * lean + (rival.detach() if gradient == "fixed_negatives" else rival)
            scores.append((leaning / leaning.norm()) @ x)
        total = total + F.cross_entropy(torch.stack(scores)[None], torch.tensor([c]))
    return total / len(labels)


@pytest.mark.parametrize("gradient", ["exact", "fixed_bias", "fixed_negatives"])
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, 1.5, 7.3])
@pytest.mark.parametrize("classes", [2, C, 40])  # fewer and more classes than examples: both sides of the Gram choice
def test_w_softmax_equals_algorithm_1_in_value_and_gradient(alpha, gradient, classes):
    generator = torch.Generator().manual_seed(2)
    features = torch.randn(B, M, generator=generator, dtype=torch.float64, requires_grad=True)
    labels = torch.randint(0, classes, (B,), generator=generator)
    loss = make("w_softmax", classes=classes, alpha=alpha, gradient=gradient)
    ours = value_and_gradients(loss(features, labels), features, loss.weight)
    printed = algorithm_1(features, labels, loss.weight, alpha, gradient)
    assert_equal(ours, value_and_gradients(printed, features, loss.weight))


def test_w_softmax_without_bias_is_normalised_softmax(batch):
    features, labels = batch
    biased, plain = make("w_softmax", alpha=0.0), make("softmax", normalize=True)
    assert torch.equal(biased.weight, plain.weight)
    ours = value_and_gradients(biased(features, labels), features, biased.weight)
    assert_equal(ours, value_and_gradients(plain(features, labels), features, plain.weight))


def test_w_softmax_stays_finite_at_the_best_two_class_weights(batch):
    features, _ = batch
    loss = make("w_softmax", classes=2, alpha=1.0)
    with torch.no_grad():
        loss.weight.copy_(torch.stack([torch.ones(M), -torch.ones(M)]))
    value, *gradients = value_and_gradients(loss(features, torch.tensor([0, 1] * (B // 2))), features, loss.weight)
    assert torch.isfinite(value)
    assert all(torch.isfinite(gradient).all() for gradient in gradients)


def test_w_softmax_predicts_with_the_unbiased_weights(batch):
    features, labels = batch
    loss = make("w_softmax", alpha=1.5)
    before = loss.logits(features)
    assert torch.allclose(before, features @ F.normalize(loss.weight).T)
    loss(features, labels)
    assert torch.equal(loss.logits(features), before)


def test_w_softmax_can_fall_by_a_common_shift_of_the_scores():
    """The property that the docstring warns of: lowering all scores together lowers the loss, not so for softmax."""
    weight = torch.eye(3, dtype=torch.float64)
    features = torch.ones(1, 3, dtype=torch.float64)
    labels = torch.tensor([0])
    losses = {}
    for name, options in (("w_softmax", {"alpha": 1.0}), ("softmax", {"normalize": True})):
        loss = make(name, classes=3, features=3, **options)
        with torch.no_grad():
            loss.weight.copy_(weight)
        losses[name] = [loss(features - shift, labels).item() for shift in (0.0, 1.0, 2.0)]
    assert losses["w_softmax"] == sorted(losses["w_softmax"], reverse=True)
    assert losses["w_softmax"][0] - losses["w_softmax"][2] > 0.5
    assert losses["softmax"][0] == pytest.approx(losses["softmax"][2])


# --- the margin of L-Softmax and A-Softmax


def psi_by_acos(cosine, m):
    theta = math.acos(max(-1.0, min(1.0, cosine)))
    k = min(int(m * theta / math.pi), m - 1)
    return (-1) ** k * math.cos(m * theta) - 2 * k


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_psi_is_the_published_function_continuous_and_falling(m):
    grid = torch.linspace(1, -1, 4001, dtype=torch.float64)
    values, _ = psi_and_slope(grid, m)
    assert values.tolist() == pytest.approx([psi_by_acos(float(c), m) for c in grid], abs=1e-9)
    assert (values.diff() < 0).all()
    assert values.diff().abs().max() < 0.03
    assert values[0] == pytest.approx(1)
    assert values[-1] == pytest.approx(1 - 2 * m)


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_the_slope_of_psi_is_its_derivative_and_finite_at_the_ends(m):
    inside = torch.linspace(-0.999, 0.999, 997, dtype=torch.float64)
    ahead, behind = (psi_and_slope(inside + step, m)[0] for step in (1e-7, -1e-7))
    assert torch.allclose(psi_and_slope(inside, m)[1], (ahead - behind) / 2e-7, atol=1e-5)
    ends = torch.tensor([-1.0, -math.sqrt(0.5), -0.5, 0.0, 0.5, math.sqrt(0.5), 1.0], dtype=torch.float64)
    assert torch.isfinite(psi_and_slope(ends, m)[1]).all()


def margin_softmax(features, labels, weight, m, lam, unit):
    """L-Softmax (unit=False) and A-Softmax (unit=True) by angles, one example at a time."""
    total = 0
    for x, label in zip(features, labels.tolist(), strict=True):
        scores = []
        for j, w in enumerate(weight):
            norms = x.norm() * (1 if unit else w.norm())
            cosine = w @ x / (w.norm() * x.norm())
            if j == label:
                theta = torch.arccos(cosine)
                k = torch.floor(m * theta / math.pi)
                cosine = (lam * cosine + (-1) ** k * torch.cos(m * theta) - 2 * k) / (1 + lam)
            scores.append(norms * cosine)
        total = total + F.cross_entropy(torch.stack(scores)[None], torch.tensor([label]))
    return total / len(labels)


@pytest.mark.parametrize(("name", "unit"), [("l_softmax", False), ("a_softmax", True)])
@pytest.mark.parametrize("m", [1, 2, 3, 4])
@pytest.mark.parametrize("lam", [0.0, 5.0])
@pytest.mark.parametrize("classes", [C, 40])  # fewer and more classes than examples
def test_angular_margins_equal_their_definition_in_value_and_gradient(batch, name, unit, m, lam, classes):
    features, labels = batch
    loss = make(name, classes=classes, m=m, base=lam, gamma=0.0, floor=lam)
    ours = value_and_gradients(loss(features, labels), features, loss.weight)
    theirs = margin_softmax(features, labels, loss.weight, m, lam, unit)
    assert_equal(ours, value_and_gradients(theirs, features, loss.weight), 1e-10)


@pytest.mark.filterwarnings("ignore:__array_wrap__ must accept:DeprecationWarning")  # theirs, with numpy 2
def test_l_softmax_agrees_with_pytorch_metric_learning(batch):
    losses = pytest.importorskip("pytorch_metric_learning.losses")
    features, labels = batch
    for m in (2, 3, 4):
        ours = make("l_softmax", m=m, base=0.0, floor=0.0)
        theirs = losses.LargeMarginSoftmaxLoss(C, M, margin=m, scale=1).double()
        theirs.W.data = ours.weight.data.T.clone()
        assert ours(features, labels).item() == pytest.approx(theirs(features, labels).item(), abs=1e-6)


def test_annealing_follows_the_published_curve_and_scales_to_the_cell():
    loss = make("l_softmax", base=1000.0, gamma=2.5e-5, power=35.0, floor=0.0, horizon=20000)
    assert loss.annealing.value == 1000
    loss.begin(200)  # a cell a hundred times shorter than the published curve
    for _ in range(100):
        loss.advance()
    assert loss.annealing.value == pytest.approx(1000 * (1 + 2.5e-5 * 10_000) ** -35)
    literal = make("l_softmax", horizon=0)
    literal.begin(200)
    for _ in range(100):
        literal.advance()
    assert literal.annealing.value == pytest.approx(1000 * (1 + 2.5e-5 * 100) ** -35)
    assert make("a_softmax", base=10.0, floor=5.0).annealing.value == 10
    faces = make("a_softmax")
    faces.begin(5000)
    for _ in range(5000):
        faces.advance()
    assert faces.annealing.value == 5.0


def test_the_schedule_moves_only_when_the_optimizer_does(batch):
    loss = make("a_softmax")
    loss.begin(100)
    for _ in range(3):
        loss(*batch)
    assert loss.annealing.t == 0
    loss.advance()
    assert loss.annealing.t == 1


@pytest.mark.parametrize("name", ["l_softmax", "a_softmax"])
def test_the_schedule_travels_in_the_checkpoint(batch, name):
    loss, fresh = make(name), make(name)
    loss.begin(100)
    for _ in range(37):
        loss.advance()
    fresh.load_state_dict(loss.state_dict())
    assert fresh.annealing.value == loss.annealing.value < 1000
    assert torch.equal(fresh(*batch), loss(*batch))


# --- center loss


def test_center_loss_is_softmax_plus_half_the_mean_squared_distance(batch):
    features, labels = batch
    loss = make("center", strength=0.1)
    with torch.no_grad():
        loss.centers.copy_(torch.randn(C, M))
    plain = F.cross_entropy(features @ loss.weight.T + loss.bias, labels)
    pull = sum((x - loss.centers[y]).square().sum() for x, y in zip(features, labels, strict=True)) / (2 * B)
    ours = value_and_gradients(loss(features, labels), features, loss.weight)
    assert_equal(ours, value_and_gradients(plain + 0.1 * pull, features, loss.weight))


def test_the_centres_follow_wens_rule_step_by_step():
    generator = torch.Generator().manual_seed(4)
    loss = make("center", alpha=0.5)
    expected = np.zeros((C, M))
    for _ in range(5):
        features = torch.randn(B, M, generator=generator, dtype=torch.float64)
        labels = torch.randint(0, C, (B,), generator=generator)
        loss(features.requires_grad_(), labels)
        assert np.allclose(loss.centers.numpy(), expected)  # forward moves nothing
        loss.advance()
        for j in range(C):
            mine = features.detach().numpy()[labels.numpy() == j]
            expected[j] = expected[j] - 0.5 * (expected[j] - mine).sum(0) / (1 + len(mine))
        assert np.allclose(loss.centers.numpy(), expected, atol=1e-12)


def test_the_centres_stand_still_when_only_evaluating(batch):
    features, labels = batch
    loss = make("center")
    with torch.no_grad():
        loss(features, labels)
    loss.eval()
    loss(features, labels)
    loss.advance()
    assert not loss.centers.any()


# --- what every one of them refuses


@pytest.mark.parametrize("name", ["softmax", "center", "l_softmax", "a_softmax", "w_softmax"])
@pytest.mark.parametrize(
    "labels", [torch.tensor([0, C]), torch.tensor([0, -1]), torch.tensor([-100, 1]), torch.tensor([0.0, 1.0])]
)
def test_bad_labels_are_refused_in_a_sentence(name, labels):
    with pytest.raises(ValueError, match="labels must"):
        make(name)(torch.randn(2, M, dtype=torch.float64), labels)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("w_softmax", {"alpha": -0.1}),
        ("l_softmax", {"m": 5}),
        ("a_softmax", {"base": -1.0}),
        ("center", {"alpha": 2.0}),
        ("center", {"strength": -1.0}),
    ],
)
def test_options_out_of_range_are_refused_in_a_sentence(name, options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} must"):
        make(name, **options)


def test_an_option_that_is_no_number_is_refused_in_a_sentence():
    for value in (math.inf, math.nan):
        with pytest.raises(ValueError, match="option 'alpha' of loss 'w_softmax' must be float"):
            make("w_softmax", alpha=value)
