"""The cosine losses against their formulas, written out with acos and loops, and against pytorch-metric-learning."""

import math
import warnings

import pytest
import torch
import torch.nn.functional as F
from kit.cosine_losses import (
    BATCH,
    CLASSES,
    FEATURES,
    angle,
    arc,
    assert_same,
    batch,
    by_angles,
    gradients,
    make,
    scaled_cosine,
    softmax_loss,
)

from lossbench.margin import arc_margin

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from pytorch_metric_learning import losses as pml


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


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
