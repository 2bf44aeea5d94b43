"""What holds for every modern loss: finite at extreme points, exact gradients, options refused by name."""

import math

import pytest
import torch
import torch.nn.functional as F
from kit.cosine_losses import ANGULAR, BATCH, CLASSES, COSINE, FEATURES, VARIANTS, angle, arc, batch, gradients, make

from lossbench.fused import cosines, margin_cross_entropy
from lossbench.margin import arc_margin, replace_target
from lossbench.plugins.registry import Registry


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def finite(loss, x, y):
    value = loss(x, y)
    slopes = gradients(value, x, *(p for p in loss.parameters() if p.requires_grad))
    return bool(torch.isfinite(value)) and all(bool(torch.isfinite(slope).all()) for slope in slopes)


def flat_weight(loss):
    """One weight a class, C×M."""
    return loss.weight[0] if loss.weight.ndim == 3 else loss.weight


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("side", [1, -1])
@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_stays_finite_where_a_cosine_is_one_or_minus_one(name, options, side, dtype):
    loss = make(name, dtype=dtype, **options)
    with torch.no_grad():
        loss.weight.copy_(torch.eye(CLASSES, FEATURES).expand_as(loss.weight))  # cosines exact to the last bit
        if loss.weight.ndim == 2:
            loss.weight[-1] = -loss.weight[0]
    x = (3 * side * flat_weight(loss).detach()).clone().requires_grad_()
    own, other = torch.arange(CLASSES), torch.arange(CLASSES).roll(1)
    assert finite(loss, x, own)  # the target's
    assert finite(loss, x, other)  # a rival's
    generic = make(name, dtype=dtype, **options)  # here rounding may leave a cosine just beyond ±1
    x = (3 * side * flat_weight(generic).detach()).clone().requires_grad_()
    assert finite(generic, x, own)
    assert finite(generic, x, other)


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_stays_finite_with_features_of_zero(name, options):
    loss = make(name, dtype=torch.float32, **options)
    x, y = batch(torch.float32)
    with torch.no_grad():
        x[:3] = 0
    assert finite(loss, x, y)
    if name in COSINE:  # a vector without a direction gets no push, let alone one of 1/ε
        assert gradients(loss(x, y), x)[0][:3].abs().max() == 0


@pytest.mark.parametrize("length", [1e6, 1e-6])
@pytest.mark.parametrize("name", [name for name in COSINE if name not in ("adaface", "magface")])
def test_cosine_losses_do_not_see_the_length_of_features(name, length):
    x, y = batch(torch.float32)
    loss = make(name, dtype=torch.float32).eval()
    assert loss((x * length).detach(), y).item() == pytest.approx(loss(x, y).item(), rel=1e-4)


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_bfloat16_follows_float64_and_ends_in_float32(name, options):
    low, high = make(name, dtype=torch.bfloat16, **options).eval(), make(name, **options).eval()
    high.load_state_dict({key: value.double() for key, value in low.state_dict().items()})
    x, y = batch(torch.bfloat16)
    wide = x.detach().double().requires_grad_()
    value = low(x, y)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(high(wide, y).item(), rel=0.05, abs=0.05)
    slope, exact = gradients(value, x)[0], gradients(high(wide, y), wide)[0]
    assert slope.dtype == torch.bfloat16
    assert F.cosine_similarity(slope.double().flatten(), exact.flatten(), dim=0) > 0.98


# Circle and AdaFace detach a part of their formula, so that no finite difference can agree with their gradient.
@pytest.mark.parametrize(("name", "options"), [v for v in VARIANTS if v[0] not in ("circle", "adaface")])
def test_gradient_agrees_with_finite_differences(name, options):
    loss = make(name, **options).eval()
    x, y = batch()
    parameters = [p for p in loss.parameters() if p.requires_grad]
    assert torch.autograd.gradcheck(lambda x, *_: loss(x, y), (x, *parameters), eps=1e-6, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize(
    ("name", "margin"),
    [
        ("arcface", "m"),
        ("subcenter_arcface", "m"),
        ("curricularface", "m"),
        ("adaface", "m"),
        ("elasticface", "m"),
        ("cosface", "m"),
        ("circle", "m"),
        ("sphereface2", "m"),
        ("sphereface_r", "m"),
        ("magface", "m_low"),
        ("contrastive", "m"),
        ("triplet", "m"),
    ],
)
def test_margin_reaches_the_loss_and_its_gradient(name, margin):
    none, some = {"sphereface_r": (1.0, 1.4), "contrastive": (1.0, 3.0)}.get(name, (0.1, 0.5))
    softer = {key: 8.0 for key in ("s", "gamma") if key in Registry().find("loss", name).options}  # 64 saturates
    x, y = batch(size=24, features=2)
    values, slopes = [], []
    for m in (none, some):
        loss = make(name, features=2, **{margin: m}, **softer).eval()
        values.append(loss(x, y))
        slopes.append(gradients(values[-1], x)[0])
    assert abs(values[0] - values[1]) > 1e-4
    assert (slopes[0] - slopes[1]).abs().max() > 1e-4


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_logits_are_scores_of_all_classes_and_a_feature_on_its_weight_is_recognised(name, options):
    loss = make(name, **options)
    x = flat_weight(loss).detach() * 5
    if name == "prototype":
        x = x / 5  # the nearest prototype to itself
    if name in ("hinge", "contrastive", "triplet"):
        with torch.no_grad():
            loss.weight.copy_(F.normalize(loss.weight))
    scores = loss.logits(x)
    assert scores.shape == (CLASSES, CLASSES)
    assert torch.equal(scores.argmax(1), torch.arange(CLASSES))


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_bad_labels_are_refused_in_words(name, options):
    loss = make(name, **options)
    x, y = batch()
    for wrong in (y + CLASSES, y - CLASSES, y.int(), y[:, None]):
        with pytest.raises(ValueError, match="labels must"):
            loss(x, wrong)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        *[(name, {"s": 0.0}) for name in (*ANGULAR, "normface", "cosface", "sphereface_r")],
        *[(name, {"s": math.nan}) for name in (*ANGULAR, "normface", "cosface", "sphereface_r")],
        *[(name, {"m": -0.1}) for name in ("arcface", "cosface", "curricularface", "adaface", "elasticface", "circle")],
        *[(name, {"m": 28.6}) for name in ("arcface", "subcenter_arcface", "curricularface", "adaface", "elasticface")],
        ("subcenter_arcface", {"k": 0}),
        ("sphereface_r", {"m": 0.9}),
        ("sphereface_r", {"form": "v3"}),
        ("sphereface_r", {"gradient": "none"}),
        ("sphereface2", {"alpha": 1.0}),
        ("sphereface2", {"t": 0.5}),
        ("sphereface2", {"r": 0.0}),
        ("sphereface2", {"m": -0.1}),
        ("sphereface2", {"strength": -1.0}),
        ("curricularface", {"rate": 1.5}),
        ("adaface", {"rate": -0.5}),
        ("adaface", {"h": -1.0}),
        ("magface", {"low": 200.0}),
        ("magface", {"m_low": 0.9}),
        ("magface", {"strength": -1.0}),
        ("elasticface", {"sigma": -0.1}),
        ("circle", {"gamma": 0.0}),
        ("hinge", {"p": 3}),
        ("hinge", {"form": "soft"}),
        ("contrastive", {"m": -1.0}),
        ("contrastive", {"strength": -1.0}),
        ("triplet", {"m": -1.0}),
        ("triplet", {"strength": -1.0}),
        ("prototype", {"form": "lvq"}),
        ("prototype", {"temperature": 0.0}),
        ("prototype", {"strength": -1.0}),
    ],
)
def test_options_out_of_range_are_refused_by_name(name, options):
    with pytest.raises(ValueError, match=rf"{next(iter(options))}.* must .*, got "):
        make(name, **options)


@pytest.mark.parametrize("name", ["curricularface", "adaface"])
def test_state_moves_in_advance_only_and_only_after_training(name):
    loss = make(name)
    x, y = batch()
    before = {key: value.clone() for key, value in loss.state_dict().items()}

    def unchanged():
        return all(torch.equal(value, before[key]) for key, value in loss.state_dict().items())

    loss(x, y)
    assert unchanged()
    loss._seen.clear()
    loss.eval()(x, y)
    loss.train()
    with torch.no_grad():
        loss(x, y)
    loss.advance()
    assert unchanged()
    loss(x, y)
    loss.advance()
    assert not unchanged()
    other = make(name, seed=3)
    other.load_state_dict(loss.state_dict())
    assert other(x, y).item() == loss(x, y).item()


# ---- the shared functions


def test_cosines_are_exact_with_weights_of_any_length():
    x, _ = batch()
    w = make("arcface").weight.detach() * torch.logspace(-6, 6, CLASSES, dtype=torch.float64)[:, None]
    w.requires_grad_()
    want = torch.stack([torch.stack([torch.cos(angle(a, b)) for b in w]) for a in x])
    assert torch.allclose(cosines(x, w), want, atol=1e-14)
    upstream = torch.randn(BATCH, CLASSES, dtype=torch.float64)
    plain = F.normalize(x) @ F.normalize(w).T
    for ours, theirs in zip(
        torch.autograd.grad(cosines(x, w), (x, w), upstream), torch.autograd.grad(plain, (x, w), upstream), strict=True
    ):
        assert torch.allclose(ours, theirs, rtol=1e-9, atol=1e-15)


def test_cosines_of_features_with_themselves_add_both_gradients():
    x, _ = batch()
    assert torch.autograd.gradcheck(lambda x: cosines(x, x), (x,))


def test_arc_margin_has_gradients_for_angle_and_margin_on_both_sides_of_the_turn():
    cosine = torch.tensor([0.99, 0.3, -0.5, -0.95, -0.8], dtype=torch.float64, requires_grad=True)
    m = torch.tensor([0.5, 0.2, 0.5, 0.5, 1.2], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(arc_margin, (cosine, m))
    assert torch.autograd.gradcheck(lambda c: arc_margin(c, 0.5), (cosine,))
    want = [arc(torch.acos(c), a.item()).item() for c, a in zip(cosine, m, strict=True)]
    assert arc_margin(cosine, m).tolist() == pytest.approx(want, abs=1e-14)


def test_arc_margin_drops_the_unbounded_part_of_its_slope_at_plus_and_minus_one():
    cosine = torch.tensor([1.0, 1.0 + 1e-9, -1.0], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(arc_margin(cosine, 0.5).sum(), cosine)
    assert slope.tolist() == pytest.approx([math.cos(0.5), math.cos(0.5), 1.0], abs=1e-9)
    (slope,) = torch.autograd.grad(arc_margin(-cosine[2:], torch.tensor([0.5], dtype=torch.float64)).sum(), cosine)
    assert slope[2].item() == pytest.approx(-math.cos(0.5), abs=1e-9)


def test_margin_cross_entropy_is_cross_entropy_with_the_target_replaced():
    _, y = batch()
    torch.manual_seed(0)
    cosine = torch.randn(BATCH, CLASSES, dtype=torch.float64, requires_grad=True)
    target = torch.randn(BATCH, dtype=torch.float64, requires_grad=True)
    ours = margin_cross_entropy(cosine, y, target, 7.0)
    plain = F.cross_entropy(7.0 * replace_target(cosine, y, target), y)
    assert ours.item() == pytest.approx(plain.item(), abs=1e-14)
    for a, b in zip(gradients(3 * ours, cosine, target), gradients(3 * plain, cosine, target), strict=True):
        assert torch.allclose(a, b, atol=1e-14)
