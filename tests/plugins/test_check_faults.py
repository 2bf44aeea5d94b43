"""Every kind of fault in a loss is caught by the property meant for it, and by no other."""

import pytest
from kit.sound_loss import CHECK, LOGITS, RETURN, SCORES, SETUP, TARGET, failures, plugin

from lossbench.plugins.check import check

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


@pytest.mark.slow
@pytest.mark.parametrize("fault", BROKEN)
def test_a_fault_is_caught_by_the_property_meant_for_it_alone_and_names_its_cure(tmp_path, fault):
    expected, changes = BROKEN[fault]
    found = failures(check(plugin(tmp_path, *changes)))
    assert set(found) == {expected}, found
    assert found[expected].strip()
    assert "\n" not in found[expected]
    assert CURES.get(fault, "") in found[expected]
