"""Hinge, contrastive, triplet and prototype losses against their formulas, in plain loops of float64."""

import math
import warnings

import pytest
import torch
import torch.nn.functional as F

from lossbench.plugins.registry import Registry

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from pytorch_metric_learning import distances, miners
    from pytorch_metric_learning import losses as pml

BATCH, CLASSES, FEATURES = 16, 5, 4


def make(name, **options):
    torch.manual_seed(0)
    loss = Registry().find("loss", name).load()(FEATURES, CLASSES, **options).double()
    if getattr(loss, "bias", None) is not None:
        torch.nn.init.normal_(loss.bias)
    return loss


def batch(seed=1, spread=1.0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(BATCH, FEATURES, generator=generator, dtype=torch.float64) * spread
    return x.requires_grad_(), torch.randint(0, CLASSES, (BATCH,), generator=generator)


def assert_same(loss, reference, x, y):
    got, want = loss(x, y), reference(x, y)
    assert got.item() == pytest.approx(want.item(), abs=1e-10)
    inputs = [x, *loss.parameters()]
    ours, theirs = (torch.autograd.grad(v, inputs, allow_unused=True, materialize_grads=True) for v in (got, want))
    for a, b in zip(ours, theirs, strict=True):
        assert (a - b).abs().max() <= 1e-10


def scores(loss, x):
    """W x + b, entry by entry."""
    bias = loss.bias if loss.bias is not None else torch.zeros(CLASSES)
    return [[(w * row).sum() + b for w, b in zip(loss.weight, bias, strict=True)] for row in x]


def softmax_loss(rows, y):
    return sum(torch.log(sum(torch.exp(z - row[k]) for z in row)) for row, k in zip(rows, y, strict=True)) / len(y)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("p", [1, 2])
def test_hinge_one_vs_rest_sums_over_classes_and_averages_over_the_batch(p, bias):
    loss = make("hinge", p=p, bias=bias)
    x, y = batch()

    def reference(x, y):
        total = 0
        for row, label in zip(scores(loss, x), y, strict=True):
            for j, z in enumerate(row):
                short = 1 - (1 if j == label else -1) * z
                total = total + (short**p if short > 0 else 0)
        return total / len(y)

    assert_same(loss, reference, x, y)


@pytest.mark.parametrize("shift", [0.0, -50.0])
def test_hinge_crammer_singer_looks_at_the_best_rival_alone(shift):
    loss = make("hinge", form="crammer_singer")
    with torch.no_grad():
        loss.bias.add_(shift)  # the best rival is the best one when all scores are negative, too
    x, y = batch()

    def reference(x, y):
        total = 0
        for row, label in zip(scores(loss, x), y, strict=True):
            short = 1 + max((z for j, z in enumerate(row) if j != label), key=torch.Tensor.item) - row[label]
            total = total + (short if short > 0 else 0)
        return total / len(y)

    assert_same(loss, reference, x, y)
    theirs = F.multi_margin_loss(loss.logits(x), y, reduction="none") * CLASSES  # the sum over rivals is no less
    assert loss(x, y) < theirs.mean()


def test_hinge_of_clear_winners_is_zero():
    for form in ("one_vs_rest", "crammer_singer"):
        loss = make("hinge", form=form, bias=False)
        with torch.no_grad():
            loss.weight.copy_(torch.eye(CLASSES, FEATURES) - 0.3)
        x = (20 * torch.eye(FEATURES, dtype=torch.float64)).requires_grad_()  # scores 14 for the label, −6 for others
        value = loss(x, torch.arange(FEATURES))
        assert value.item() == 0
        assert torch.autograd.grad(value, x)[0].abs().max() == 0


@pytest.mark.parametrize("m", [1.0, 2.5])
def test_contrastive_is_softmax_plus_the_mean_over_all_pairs(m):
    loss = make("contrastive", m=m, strength=0.7)
    x, y = batch(spread=0.6)
    kinds = set()

    def reference(x, y):
        pairs = []
        for i in range(BATCH):
            for k in range(i):
                d = ((x[i] - x[k]) ** 2).sum().sqrt()
                same, near = bool(y[i] == y[k]), bool(d < m)
                kinds.add((same, near))
                pairs.append(d**2 / 2 if same else (m - d) ** 2 / 2 if near else 0 * d)
        return softmax_loss(scores(loss, x), y) + 0.7 * sum(pairs) / len(pairs)

    assert_same(loss, reference, x, y)
    assert {(True, True), (False, True), (False, False)} <= kinds


def test_contrastive_keeps_distances_of_features_far_from_the_origin():
    loss = make("contrastive").float()
    x, y = (tensor.detach() for tensor in batch())
    near, far = (loss(v.float(), y) - F.cross_entropy(loss.logits(v.float()), y) for v in (x, x + 1000))
    assert far.item() == pytest.approx(near.item(), rel=1e-3)


def test_contrastive_equal_features_of_two_classes_have_a_finite_gradient():
    loss = make("contrastive", strength=1.0)
    x = torch.ones(2, FEATURES, dtype=torch.float64, requires_grad=True)
    y = torch.tensor([0, 1])
    value = loss(x, y)
    softmax = F.cross_entropy(loss.logits(x), y)
    assert value.item() == pytest.approx(softmax.item() + 0.5, abs=1e-9)
    assert torch.allclose(torch.autograd.grad(value, x)[0], torch.autograd.grad(softmax, x)[0], atol=1e-12)


@pytest.mark.parametrize("name", ["contrastive", "triplet"])
def test_without_a_valid_pair_or_triplet_only_softmax_is_left(name):
    loss = make(name, strength=5.0)
    x, y = batch()
    for size, labels in ((1, y[:1]), (4, torch.tensor([0, 1, 2, 3])), (4, torch.zeros(4, dtype=torch.int64))):
        if name == "contrastive" and size > 1:
            continue  # every two examples are a pair
        value = loss(x[:size], labels)
        assert value.item() == pytest.approx(F.cross_entropy(loss.logits(x[:size]), labels).item(), abs=1e-12)
        assert torch.isfinite(torch.autograd.grad(value, x)[0]).all()


def mined(x, y, m, squared):
    """(anchor, mate, nearest semi-hard stranger) in loops, and the distances."""
    unit = [row / row.norm() for row in x]
    d = [[((a - b) ** 2).sum() if squared else ((a - b) ** 2).sum().sqrt() for b in unit] for a in unit]
    triplets = []
    for a in range(len(x)):
        for p in range(len(x)):
            if a == p or y[a] != y[p]:
                continue
            strangers = [n for n in range(len(x)) if y[n] != y[a] and d[a][p] < d[a][n] < d[a][p] + m]
            if strangers:
                triplets.append((a, p, min(strangers, key=lambda n: d[a][n].item())))
    return triplets, d


@pytest.mark.parametrize("m", [0.2, 1.0])
@pytest.mark.parametrize("squared", [True, False])
def test_triplet_takes_the_nearest_semi_hard_stranger_of_every_pair(m, squared):
    loss = make("triplet", m=m, strength=0.7, squared=squared)
    x, y = batch()
    y = y % 3
    triplets, _ = mined(x.detach(), y, m, squared)
    mates = sum(int((y == label).sum()) * (int((y == label).sum()) - 1) for label in range(3))
    assert 3 < len(triplets) < mates  # some pairs have a stranger, some have none

    def reference(x, y):
        triplets, d = mined(x, y, m, squared)
        total = sum(torch.relu(d[a][p] - d[a][n] + m) for a, p, n in triplets)
        return softmax_loss(scores(loss, x), y) + 0.7 * total / len(triplets)

    # A feature's distance to itself is √0 in the reference: mask the NaN slope that it would send back.
    if not squared:
        reference = without_self_distance(reference)
    assert_same(loss, reference, x, y)


def without_self_distance(reference):
    """The same value from features nudged by nothing: √(d² + 1e-300) has a finite slope at 0."""

    def safe(x, y):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.Tensor, "sqrt", lambda tensor: torch.sqrt(tensor + 1e-300))
            return reference(x, y)

    return safe


def test_triplet_passes_over_a_stranger_exactly_as_far_as_the_mate():
    loss = make("triplet", strength=1.0)
    x = torch.zeros(4, FEATURES, dtype=torch.float64)
    x[:, :2] = torch.tensor([[1, 0], [0, 1], [0, -1], [-0.05, math.sqrt(1 - 0.05**2)]])
    y = torch.tensor([0, 0, 1, 1])
    triplets, d = mined(x, y, 0.2, squared=True)
    assert (0, 1, 3) in triplets and d[0][1] == d[0][2]
    want = sum(d[a][p] - d[a][n] + 0.2 for a, p, n in triplets) / len(triplets)
    assert (loss(x, y) - F.cross_entropy(loss.logits(x), y)).item() == pytest.approx(want.item(), abs=1e-10)


@pytest.mark.parametrize("squared", [True, False])
def test_triplet_agrees_with_pytorch_metric_learning_on_the_same_triplets(squared):
    loss = make("triplet", m=0.2, squared=squared)
    x, y = batch()
    y = y % 3
    distance = distances.LpDistance(normalize_embeddings=True, power=2 if squared else 1)
    triplets, d = mined(x.detach(), y, 0.2, squared)
    anchors, mates, strangers = miners.TripletMarginMiner(0.2, type_of_triplets="semihard", distance=distance)(x, y)
    best = {}
    for a, p, n in zip(anchors.tolist(), mates.tolist(), strangers.tolist(), strict=True):
        best[a, p] = min(best.get((a, p), n), n, key=lambda n, a=a: d[a][n].item())
    assert sorted((a, p, n) for (a, p), n in best.items()) == sorted(triplets)
    indices = tuple(torch.tensor(column) for column in zip(*triplets, strict=True))
    theirs = pml.TripletMarginLoss(margin=0.2, distance=distance)(x, y, indices)
    ours = loss(x, y) - F.cross_entropy(loss.logits(x), y)
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-10)


@pytest.mark.parametrize("form", ["cpl", "gcpl"])
def test_prototype_is_the_softmax_of_negative_squared_distances(form):
    loss = make("prototype", form=form, temperature=1.7, strength=0.3)
    x, y = batch()

    def reference(x, y):
        rows = [[-((row - c) ** 2).sum() / 1.7 for c in loss.weight] for row in x]
        away = sum(((row - loss.weight[k]) ** 2).sum() / 2 for row, k in zip(x, y, strict=True)) / len(y)
        return softmax_loss(rows, y) + (0.3 * away if form == "gcpl" else 0)

    assert_same(loss, reference, x, y)


def test_prototype_scores_are_distances_up_to_one_number_a_row():
    loss = make("prototype", temperature=2.0)
    x, _ = batch()
    rest = loss.logits(x) + torch.cdist(x, loss.weight) ** 2 / 2
    assert (rest - rest[:, :1]).abs().max() < 1e-12


def test_prototype_tells_classes_apart_at_huge_norms():
    loss = make("prototype").float()
    x, _ = batch()
    far = (x.detach() * 1e6).float()
    assert torch.equal(loss.logits(far).argmax(1), torch.cdist(far.double(), loss.weight.double()).argmin(1))


def test_default_options_are_those_of_the_papers():
    defaults = {
        name: {key: option.default for key, option in Registry().find("loss", name).options.items()}
        for name in ("contrastive", "triplet", "prototype", "arcface", "cosface", "sphereface2", "circle", "adaface")
    }
    assert defaults["contrastive"]["m"] == 1
    assert defaults["triplet"]["m"] == 0.2
    assert defaults["prototype"]["strength"] == 0.001
    assert defaults["arcface"] == {"s": 64, "m": 0.5}
    assert defaults["cosface"] == {"s": 64, "m": 0.35}
    assert defaults["sphereface2"] == {"alpha": 0.7, "r": 40, "m": 0.4, "t": 3, "strength": 1}
    assert defaults["circle"] == {"m": 0.25, "gamma": 256}
    assert defaults["adaface"] == {"s": 64, "m": 0.4, "h": 0.333, "rate": 0.01}
    assert math.isclose(Registry().find("loss", "subcenter_arcface").options["k"].default, 3)
