"""The cosine losses against their formulas, written out with acos and loops, and against pytorch-metric-learning."""

import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from lossbench.fused import cosines, margin_cross_entropy
from lossbench.margin import arc_margin, replace_target
from lossbench.plugins.registry import Registry

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from pytorch_metric_learning import losses as pml

BATCH, CLASSES, FEATURES = 9, 6, 5
CLASSIC = ["hinge", "contrastive", "triplet", "prototype"]
ANGULAR = ["arcface", "subcenter_arcface", "curricularface", "adaface", "magface", "elasticface"]
COSINE = [*ANGULAR, "normface", "cosface", "sphereface_r", "sphereface2", "circle"]
VARIANTS = [
    *[(name, {}) for name in (*COSINE, *CLASSIC)],
    ("sphereface_r", {"form": "v2"}),
    ("sphereface2", {"t": 1.5}),
    ("magface", {"low": 0.5, "high": 4.0}),
    ("hinge", {"p": 2}),
    ("hinge", {"form": "crammer_singer"}),
    ("triplet", {"squared": False}),
    ("prototype", {"form": "cpl"}),
]


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make(name, features=FEATURES, classes=CLASSES, dtype=torch.float64, seed=0, **options):
    torch.manual_seed(seed)
    return Registry().find("loss", name).load()(features, classes, **options).to(dtype)


def batch(dtype=torch.float64, seed=1, size=BATCH, features=FEATURES, classes=CLASSES):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, features, generator=generator, dtype=torch.float64) * 2
    y = torch.randint(0, classes, (size,), generator=generator)
    y[:2] = 0  # at least one pair of one class
    return x.to(dtype).requires_grad_(), y


def gradients(value, *inputs):
    return torch.autograd.grad(value, inputs, allow_unused=True, materialize_grads=True)


def assert_same(loss, reference, x, y, tolerance=1e-10):
    """Value and gradients of the plugin and of the plain form agree; `reference` takes features, weights, labels."""
    got, want = loss(x, y), reference(x, loss.weight, y)
    assert got.ndim == 0
    assert abs(got.item() - want.item()) <= tolerance * max(1, abs(want.item()))
    for ours, theirs in zip(gradients(got, x, loss.weight), gradients(want, x, loss.weight), strict=True):
        assert theirs.abs().max() > 1e-6
        assert (ours - theirs).abs().max() <= tolerance * max(1.0, theirs.abs().max().item())


def angle(a, b):
    return torch.acos((a @ b) / (a.norm() * b.norm()))


def softmax_loss(rows, y):
    """−log softmax, row by row."""
    losses = [torch.log(sum(torch.exp(z - row[label]) for z in row)) for row, label in zip(rows, y, strict=True)]
    return sum(losses) / len(losses)


def by_angles(x, w, y, target, rival):
    """Softmax loss whose logit is target(θ, i) for the label and rival(θ, i) for any other class."""
    rows = [
        [(target if j == y[i] else rival)(angle(x[i], w[j]), i) for j in range(len(w))]  # plain loops, on purpose
        for i in range(len(x))
    ]
    return softmax_loss(rows, y)


def arc(theta, m):
    return torch.cos(theta + m) if theta <= math.pi - m else torch.cos(theta) - m * math.sin(m)


def scaled_cosine(s):
    return lambda theta, i: s * torch.cos(theta)


# ---- formulas


def test_normface_is_the_softmax_of_scaled_cosines():
    loss = make("normface", s=7.0)
    x, y = batch()
    assert_same(loss, lambda x, w, y: by_angles(x, w, y, scaled_cosine(7.0), scaled_cosine(7.0)), x, y)


def test_normface_learns_its_scale_unless_told_not_to():
    x, y = batch()
    loss = make("normface", s=7.0)
    (slope,) = gradients(loss(x, y), loss.s)
    step = 1e-6
    values = []
    for s in (7 + step, 7 - step):
        with torch.no_grad():
            loss.s.fill_(s)
            values.append(loss(x, y).item())
    assert slope.item() == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-6)
    assert not make("normface", learn=False).s.requires_grad


def test_cosface_lowers_the_target_cosine_by_m():
    loss = make("cosface", s=8.0, m=0.3)
    x, y = batch()

    def reference(x, w, y):
        return by_angles(x, w, y, lambda theta, i: 8 * (torch.cos(theta) - 0.3), scaled_cosine(8.0))

    assert_same(loss, reference, x, y)


@pytest.mark.parametrize("m", [0.0, 0.3, 0.5, 1.4])
def test_arcface_adds_m_to_the_target_angle(m):
    loss = make("arcface", s=8.0, m=m)
    x, y = batch()
    assert_same(loss, lambda x, w, y: by_angles(x, w, y, lambda t, i: 8 * arc(t, m), scaled_cosine(8.0)), x, y)


def test_arcface_goes_on_falling_past_pi_minus_m():
    loss = make("arcface", s=8.0, m=0.5)
    x, y = batch()
    with torch.no_grad():
        x.copy_(-loss.weight[y] + 0.05 * x)
    assert all(angle(x[i], loss.weight[y[i]]) > math.pi - 0.5 for i in range(3))
    assert_same(loss, lambda x, w, y: by_angles(x, w, y, lambda t, i: 8 * arc(t, 0.5), scaled_cosine(8.0)), x, y)
    theta = torch.linspace(0, math.pi, 2001, dtype=torch.float64)
    assert (arc_margin(theta.cos(), 0.5).diff() < 0).all()


def test_subcenter_arcface_uses_the_nearest_of_k_weights():
    loss = make("subcenter_arcface", k=3, s=8.0, m=0.4)
    x, y = batch()

    def reference(x, w, y):
        rows = []
        for i in range(len(x)):
            nearest = [min((angle(x[i], w[k, j]) for k in range(3)), key=torch.Tensor.item) for j in range(CLASSES)]
            rows.append([8 * (arc(t, 0.4) if j == y[i] else torch.cos(t)) for j, t in enumerate(nearest)])
        return softmax_loss(rows, y)

    assert_same(loss, reference, x, y)
    cosine = F.normalize(x) @ F.normalize(loss.weight.flatten(0, 1)).T
    assert torch.allclose(loss.logits(x), 8 * cosine.view(BATCH, 3, CLASSES).amax(1), atol=1e-12)


def test_equal_sub_centers_act_as_one_weight_and_share_its_gradient():
    one, three = make("arcface", s=8.0), make("subcenter_arcface", s=8.0)
    x, y = batch()
    with torch.no_grad():  # whole numbers: products are exact, so that equal weights have equal cosines to the last bit
        x.copy_((4 * x).round())
        one.weight.copy_((20 * one.weight).round())
        three.weight.copy_(one.weight.expand_as(three.weight))
    single, shared = one(x, y), three(x, y)
    assert shared.item() == pytest.approx(single.item(), abs=1e-12)
    want, got = gradients(single, x, one.weight), gradients(shared, x, three.weight)
    assert torch.allclose(got[0], want[0], atol=1e-12)
    assert torch.allclose(got[1], want[1].expand_as(got[1]) / 3, atol=1e-12)


@pytest.mark.parametrize("m", [1.0, 1.5, 3.3])
@pytest.mark.parametrize("form", ["v1", "v2"])
def test_sphereface_r_multiplies_angles(form, m):
    loss = make("sphereface_r", form=form, s=8.0, m=m)
    x, y = batch()

    def reference(x, w, y):
        if form == "v1":
            return by_angles(x, w, y, lambda t, i: 8 * torch.cos((m * t).clamp(max=math.pi)), scaled_cosine(8.0))
        return by_angles(x, w, y, scaled_cosine(8.0), lambda t, i: 8 * torch.cos(t / m))

    assert_same(loss, reference, x, y)


def test_sphereface_r_detached_has_the_value_of_exact_and_the_gradient_of_plain_cosines():
    x, y = batch()
    exact, detached = (make("sphereface_r", s=8.0, gradient=gradient) for gradient in ("exact", "detached"))
    assert detached(x, y).item() == pytest.approx(exact(x, y).item(), abs=1e-12)

    def reference(x, w, y):
        def target(theta, i):
            moved = torch.cos((1.5 * theta).clamp(max=math.pi))
            return 8 * (torch.cos(theta) + (moved - torch.cos(theta)).detach())

        return by_angles(x, w, y, target, scaled_cosine(8.0))

    assert_same(detached, reference, x, y)


@pytest.mark.parametrize("t", [1.0, 2.5, 3.0])
def test_sphereface2_is_a_weighted_sum_of_binary_losses(t):
    loss = make("sphereface2", alpha=0.6, r=9.0, m=0.3, t=t, strength=2.0)
    x, y = batch()
    b = loss.bias.item()

    def reference(x, w, y):
        total = 0
        for i in range(len(x)):
            for j in range(len(w)):
                g = 2 * ((torch.cos(angle(x[i], w[j])) + 1) / 2) ** t - 1
                if j == y[i]:
                    total = total + 0.6 / 9 * torch.log(1 + torch.exp(-9 * (g - 0.3) - b))
                else:
                    total = total + 0.4 / 9 * torch.log(1 + torch.exp(9 * (g + 0.3) + b))
        return 2 * total / len(x)

    assert_same(loss, reference, x, y)


@pytest.mark.parametrize("classes", [2, 3, 10, 1000])
def test_sphereface2_starts_with_the_bias_that_is_best_where_all_cosines_are_zero(classes):
    loss = make("sphereface2", classes=classes)
    zero, label = torch.zeros(1, FEATURES, dtype=torch.float64), torch.zeros(1, dtype=torch.int64)
    (slope,) = gradients(loss(zero, label), loss.bias)
    rivals_alone = 0.3 * torch.sigmoid(40 * torch.tensor(2 * 0.5**3 - 1 + 0.4, dtype=torch.float64) + loss.bias)
    assert abs(slope.item()) < 1e-6 * (classes - 1) * rivals_alone.item() + 1e-15  # float32 holds the bias to 1e-7


@pytest.mark.parametrize("t", [0.0, 0.7])
def test_curricularface_scales_the_rivals_that_beat_the_target(t):
    loss = make("curricularface", s=8.0, m=0.5)
    loss.t.fill_(t)
    x, y = batch()
    hard = []

    def reference(x, w, y):
        def rival(theta, i):
            c = torch.cos(theta)
            hard.append(bool(c > arc(angle(x[i], w[y[i]]), 0.5)))
            return 8 * (c * (t + c) if hard[-1] else c)

        return by_angles(x, w, y, lambda theta, i: 8 * arc(theta, 0.5), rival)

    assert_same(loss, reference, x, y)
    assert 0 < sum(hard) < len(hard)


def test_curricularface_moves_t_once_a_step_by_the_mean_target_cosine():
    loss = make("curricularface", rate=0.25)
    x, y = batch()
    loss(x[:4], y[:4])
    loss(x[4:], y[4:])  # gradient accumulation: two forwards, one step
    assert loss.t.item() == 0
    loss.advance()
    mean = sum(torch.cos(angle(x[i], loss.weight[y[i]])).item() for i in range(BATCH)) / BATCH
    assert loss.t.item() == pytest.approx(0.25 * mean, abs=1e-12)
    loss.advance()  # a step without a forward changes nothing
    assert loss.t.item() == pytest.approx(0.25 * mean, abs=1e-12)


def adaface_reference(m, h, s, mean, std):
    def reference(x, w, y):
        z = [min(1, max(-1, h * (min(100, max(0.001, row.norm().item())) - mean) / (std + 0.001))) for row in x]

        def target(theta, i):
            return s * (torch.cos((theta - m * z[i]).clamp(0, math.pi)) - m * z[i] - m)

        return by_angles(x, w, y, target, scaled_cosine(s))

    return reference


def test_adaface_draws_its_margin_from_the_feature_norm_without_a_gradient():
    loss = make("adaface", s=8.0, m=0.4, h=0.333)
    x, y = batch()
    assert_same(loss, adaface_reference(0.4, 0.333, 8.0, 20.0, 100.0), x, y)
    loss.mean.fill_(4.0)
    loss.std.fill_(0.6)
    assert_same(loss, adaface_reference(0.4, 0.333, 8.0, 4.0, 0.6), x, y)


@pytest.mark.parametrize("length", [1.0, 9.0])
@pytest.mark.parametrize("side", [1, -1])
def test_adaface_keeps_the_moved_angle_between_zero_and_pi(length, side):
    loss = make("adaface", s=8.0, m=0.4, h=1.0)
    loss.mean.fill_(4.0)
    loss.std.fill_(0.1)
    x, y = batch()
    with torch.no_grad():
        x.copy_(length * F.normalize(side * F.normalize(loss.weight[y]) + 0.02 * x))
    assert_same(loss, adaface_reference(0.4, 1.0, 8.0, 4.0, 0.1), x, y)


def test_adaface_moves_its_statistics_once_a_step():
    loss = make("adaface", rate=0.5)
    x, y = batch()
    loss(x[:4], y[:4])
    loss(x[4:], y[4:])
    assert (loss.mean.item(), loss.std.item()) == (20, 100)
    loss.advance()
    norms = x.detach().norm(dim=1)
    assert loss.mean.item() == pytest.approx(10 + norms.mean().item() / 2, abs=1e-12)
    assert loss.std.item() == pytest.approx(50 + norms.std().item() / 2, abs=1e-12)
    moved = loss.mean.item()
    loss.advance()  # a step without a forward changes nothing
    assert loss.mean.item() == moved


def test_adaface_keeps_its_spread_on_a_batch_of_one():
    loss = make("adaface")
    x, y = batch()
    loss(x[:1], y[:1]).backward()
    loss.advance()
    assert loss.std.item() == 100
    assert math.isfinite(loss.mean.item())


def test_magface_has_a_margin_that_grows_with_the_norm_and_a_pull_on_it():
    loss = make("magface", s=8.0, m_low=0.2, m_high=0.9, low=3.0, high=5.0, strength=4.0)
    x, y = batch()
    norms = x.detach().norm(dim=1)
    assert (norms < 3).any() and (norms > 5).any() and ((norms > 3) & (norms < 5)).any()

    def reference(x, w, y):
        a = [row.norm().clamp(3, 5) for row in x]

        def target(theta, i):
            m = 0.2 + 0.7 * (a[i] - 3) / 2
            return 8 * (torch.cos(theta + m) if theta <= math.pi - m else torch.cos(theta) - m * torch.sin(m))

        return by_angles(x, w, y, target, scaled_cosine(8.0)) + 4 * sum(1 / v + v / 25 for v in a) / len(a)

    assert_same(loss, reference, x, y)
    with torch.no_grad():
        x.copy_(4 * F.normalize(-F.normalize(loss.weight[y]) + 0.05 * x))  # past π − m, where m still has a gradient
    assert_same(loss, reference, x, y)


def test_magface_default_margin_is_the_papers():
    loss = make("magface")
    assert [loss.m_low + loss.slope * (a - 10) for a in (10, 60, 110)] == pytest.approx([0.45, 0.625, 0.8])


def test_elasticface_draws_one_margin_an_example_from_the_global_generator():
    loss = make("elasticface", s=8.0, m=0.5, sigma=0.1)
    x, y = batch()
    torch.manual_seed(5)
    margins = torch.empty(BATCH, dtype=torch.float64).normal_(0.5, 0.1)
    assert margins.std() > 0.01

    def reference(x, w, y):
        return by_angles(x, w, y, lambda t, i: 8 * arc(t, margins[i].item()), scaled_cosine(8.0))

    torch.manual_seed(5)
    assert_same(loss, reference, x, y)


def test_elasticface_draws_nothing_in_evaluation_and_is_arcface_there():
    loss, arcface = make("elasticface", s=8.0).eval(), make("arcface", s=8.0)
    x, y = batch()
    state = torch.get_rng_state()
    assert loss(x, y).item() == arcface(x, y).item()
    assert torch.equal(torch.get_rng_state(), state)


def test_elasticface_keeps_its_draws_within_a_quarter_turn():
    loss = make("elasticface", sigma=50.0)
    x, y = batch(size=64)
    torch.manual_seed(0)
    value = loss(x, y)
    assert torch.isfinite(value) and value < 64 * (2 + math.pi / 2 + 1)


def test_circle_weighs_each_cosine_by_its_distance_from_the_optimum():
    loss = make("circle", m=0.25, gamma=8.0)
    x, y = batch()

    def reference(x, w, y):
        def target(theta, i):
            c = torch.cos(theta)
            return 8 * max(0.0, 1.25 - c.item()) * (c - 0.75)

        def rival(theta, i):
            c = torch.cos(theta)
            return 8 * max(0.0, c.item() + 0.25) * (c - 0.25)

        return by_angles(x, w, y, target, rival)

    assert_same(loss, reference, x, y)


# ---- pytorch-metric-learning


def with_weights(theirs, weight):
    theirs.W.data = weight.detach().T.clone()
    return theirs.double()


@pytest.mark.parametrize(
    ("name", "options", "theirs"),
    [
        ("arcface", {"s": 64.0, "m": 0.5}, lambda: pml.ArcFaceLoss(CLASSES, FEATURES, margin=math.degrees(0.5))),
        ("cosface", {}, lambda: pml.CosFaceLoss(CLASSES, FEATURES)),
        ("normface", {"s": 20.0}, lambda: pml.NormalizedSoftmaxLoss(CLASSES, FEATURES, temperature=0.05)),
    ],
)
def test_same_weights_give_the_loss_of_pytorch_metric_learning(name, options, theirs):
    loss = make(name, **options)
    theirs = with_weights(theirs(), loss.weight)
    x, y = batch()
    ours, other = loss(x, y), theirs(x, y)
    assert ours.item() == pytest.approx(other.item(), abs=1e-10)
    mine, their = gradients(ours, x, loss.weight), gradients(other, x, theirs.W)
    assert torch.allclose(mine[0], their[0], atol=1e-9)
    assert torch.allclose(mine[1], their[1].T, atol=1e-9)


def test_same_sub_centers_give_the_loss_of_pytorch_metric_learning():
    loss = make("subcenter_arcface", m=0.5)
    theirs = pml.SubCenterArcFaceLoss(
        num_classes=CLASSES, embedding_size=FEATURES, margin=math.degrees(0.5), sub_centers=3
    )
    theirs = with_weights(theirs, loss.weight.transpose(0, 1).reshape(CLASSES * 3, FEATURES))
    x, y = batch()
    assert loss(x, y).item() == pytest.approx(theirs(x, y).item(), abs=1e-10)


def test_circle_is_pytorch_metric_learnings_pair_form_with_class_weights_as_partners():
    loss = make("circle", m=0.25, gamma=16.0)
    theirs = pml.CircleLoss(m=0.25, gamma=16)
    x, y = batch()
    ours = loss(x, y)
    other = theirs(x, y, ref_emb=loss.weight, ref_labels=torch.arange(CLASSES))
    assert ours.item() == pytest.approx(other.item(), abs=1e-10)
    assert torch.allclose(gradients(ours, x)[0], gradients(other, x)[0], atol=1e-9)


# ---- what holds for every loss of this kind


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("length", [1e6, 1e-6])
@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_stays_finite_with_huge_and_tiny_features(name, options, length, dtype):
    loss = make(name, dtype=dtype, **options)
    x, y = batch(dtype)
    with torch.no_grad():
        x.mul_(length)
    assert finite(loss, x, y)


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


@pytest.mark.parametrize("name", [*COSINE, *CLASSIC])
def test_plugin_file_can_be_listed_without_running_it(name):
    plugin = Registry().find("loss", name)
    assert plugin.summary.endswith(".") and ":" in plugin.summary and len(plugin.summary) <= 120
    assert any(str(year) in plugin.doc.splitlines()[-1] for year in range(1990, 2026))
    assert plugin.options
    for option in plugin.options.values():
        assert option.parse(option.default) == option.default


class Largest(TorchDispatchMode):
    """The most elements of any tensor made inside."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return out


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_no_tensor_of_batch_times_classes_times_features_is_made(name, options):
    size, classes, features = 24, 30, 28
    loss = make(name, features=features, classes=classes, **options)
    x, y = batch(size=size, features=features, classes=classes)
    with Largest() as largest:
        loss(x, y).backward()
    assert largest.elements <= 3 * max(size * classes, classes * features)  # 3 sub-centers


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
