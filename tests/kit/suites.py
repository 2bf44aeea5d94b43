"""Suites that several tests share."""

from __future__ import annotations

from conftest import SMALL

RANGES = "ranges = { w_softmax = { alpha = [0.1, 2.0] } }\n"
TUNED = SMALL.replace('"w_softmax"]', '"w_softmax", "cosface[s=16.0]"]').replace("seeds = 2", "seeds = 3") + (
    "\n[tune]\ntrials = 4\nseeds = 2\nlr = [0.005, 0.2]\n" + RANGES
)
VERIFIED = """
name = "verified"

[[experiment]]
name = "unseen"
task = "verification"
dataset = { name = "glyphs", classes = 120, per_class = 5, unseen = 40, pairs_per_fold = 20 }
backbone = { name = "cnn", channels = 4, depths = [1] }
widths = [8]
losses = ["softmax", "cosface"]
seeds = 1
schedule = { steps = 3, batch = 16 }

[tune]
trials = 2
validation = 0.25
lr = [0.005, 0.2]
"""
RETRIEVED = VERIFIED.replace("verification", "retrieval").replace("pairs_per_fold = 20", "test_per_class = 6")

NOTE = "Stand-ins: digits and glyphs replace MNIST and CIFAR-10. The real data: lossbench run any --profile cpu."
ANY = f"""
name = "any"
title = "Anywhere"
auto = ["full", "cpu", "offline"]

[defaults]
backbone = {{ name = "cnn", channels = 4, depths = [1] }}
widths = [8]
losses = ["softmax", "w_softmax"]
seeds = 2
schedule = {{ steps = 4, batch = 8 }}

[[experiment]]
name = "numbers"
dataset = "mnist"

[[experiment]]
name = "pictures"
dataset = "cifar10"

[[experiment]]
name = "faces"
task = "verification"
dataset = "casia_webface"

[profile.full]
all = {{ device = "cuda" }}

[profile.cpu]
all = {{ schedule = {{ steps = 3 }} }}

[profile.offline]
note = "{NOTE}"
skip = ["faces"]
experiment.numbers = {{ dataset = {{ name = "digits" }} }}
experiment.pictures = {{ dataset = {{ name = "glyphs", classes = 10, per_class = 10, size = 16 }} }}
"""
