"""`lossbench check` of a dataset: does `load` return valid data for every task, and the same data every time?"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import get_args

import numpy as np

from lossbench.core.errors import LossbenchError, MissingDataError
from lossbench.data import apart, cache, data_folder, done_apart
from lossbench.data.dataset import UNSEEN, Dataset
from lossbench.plugins.check.finding import Finding
from lossbench.plugins.registry import FOLDER, REQUIRED, Plugin, Registry


def check_dataset(plugin: Plugin, registry: Registry) -> list[Finding]:
    """Load a dataset twice with its default options and once for every other task, each time in a separate process."""
    if plugin.name not in registry.names("dataset"):  # given as a file
        if plugin.path.parent.name != FOLDER["dataset"]:
            return [
                Finding("loads", "fail", f"move it into a folder named {FOLDER['dataset']}/, where it can be found")
            ]
        registry = Registry([*registry.folders, plugin.path.parents[1]])
    try:
        if needed := next((name for name, option in plugin.own.items() if option.default is REQUIRED), ""):
            return [Finding("loads", "skip", f"option '{needed}' has no default, so only a suite can load it")]
        with tempfile.TemporaryDirectory(prefix="lossbench-check-") as scratch:
            first, second = (_loaded(plugin, registry, Path(scratch) / f"{plugin.name}-{turn}-x") for turn in "12")
            tasks = [_task(plugin, registry, Path(scratch), task) for task in _other_tasks(plugin)]
    except MissingDataError as error:
        return [Finding("loads", "skip", str(error))]
    except LossbenchError as error:
        return [Finding("loads", "fail", str(error))]
    shape = "×".join(map(str, first.train.whole.shape[1:]))
    found = f"{len(first.train):,} training and {len(first.test):,} test images, {shape} (H×W×C)"
    findings = [Finding("loads", "pass", found), Finding("classes", "fact", f"{first.classes:,} classes")]
    if first.pairs is not None:
        findings.append(Finding("pairs", "fact", f"{len(first.pairs):,} pairs for verification"))
    findings += tasks
    if first.version == second.version:
        findings.append(Finding("deterministic", "pass", "loading it twice gives the same arrays"))
    else:
        sentence = "loading it twice gives different arrays: seed every random generator, sort every list of files"
        findings.append(Finding("deterministic", "fail", sentence))
    return findings


def _other_tasks(plugin: Plugin) -> list[str]:
    """The tasks besides the default one that the option `task` has, if it is there."""
    option = plugin.own.get("task")
    named = get_args(option.annotation) if option else ()
    return [task for task in named if task != option.default and task in ("classification", *UNSEEN)] if option else []


def _task(plugin: Plugin, registry: Registry, scratch: Path, task: str) -> Finding:
    """What is tested in a task, or why its data is refused."""
    try:
        found = _loaded(plugin, registry, scratch / f"{plugin.name}-{task}-x", task=task)
    except LossbenchError as error:
        return Finding(task, "skip" if isinstance(error, MissingDataError) else "fail", str(error))
    sizes = np.unique(found.test.labels, return_counts=True)[1]
    tested = f"{len(found.test):,} test images of {len(sizes):,} {'unseen ' if found.unseen else ''}classes"
    pairs = "" if found.pairs is None else f", {len(found.pairs):,} pairs"
    alone = f", {(sizes == 1).sum():,} of them alone in their class" if task == "retrieval" else ""
    return Finding(task, "pass", f"{found.classes:,} classes to train on; {tested}{pairs}{alone}")


def _loaded(plugin: Plugin, registry: Registry, folder: Path, **chosen: str) -> Dataset:
    own = {name: option.default for name, option in plugin.own.items()} | chosen
    job = {"task": "prepare", "root": str(data_folder().absolute()), "own": own, "folder": str(folder)}
    apart.run(done_apart, plugin, registry, job | {"size": None, "gray": False}, lambda name, done, total: None)
    dataset = cache.opened(folder)
    assert dataset
    return dataset
