"""Name → arrays. A dataset is two splits of uint8 images with int64 labels; nothing here imports torch.

load_dataset("mnist").train.images       uint8, N×H×W×C, memory-mapped from the prepared file
load_dataset("mnist").train.labels       int64, N
load_dataset("mnist", classes=5, train=100, seed=0)
load_dataset("lfw", task="verification").pairs      int64, P×3: test image a, test image b, 1 if the same class
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lossbench.core.errors import DataError, LossbenchError, MissingDataError
from lossbench.core.files import user_cache
from lossbench.data import apart, cache, contract
from lossbench.data import subsets as view
from lossbench.data.dataset import UNSEEN, Dataset, Images, Split
from lossbench.plugins.registry import SHARED_DATASET_OPTIONS, Plugin, Registry

__all__ = ["Dataset", "Images", "Split", "count_classes", "data_folder", "is_available", "load_dataset"]

LARGEST_SIDE = 4096  # pixels: keeps a typing error from filling the disk


def data_folder(given: str | os.PathLike[str] | None = None) -> Path:
    """The folder of datasets: `given`, else $LOSSBENCH_DATA, else the user's cache folder."""
    return Path(given or os.environ.get("LOSSBENCH_DATA") or user_cache())


def load_dataset(
    name: str,
    *,
    seed: int = 0,
    data: str | os.PathLike[str] | None = None,
    registry: Registry | None = None,
    progress: cache.Progress = lambda name, done, total: None,
    **options: Any,
) -> Dataset:
    """A dataset by name; prepared as memory-mapped arrays the first time, opened in milliseconds afterwards.

    Every dataset takes `train` (a stratified subset of that many images, drawn by `seed`) or `per_class` (that many of
    each class), `classes` (the first k, or those listed), `validation` (hold out this share of the training images and
    test on it instead of the test set), `holdout` (hold out this share, of what `validation` leaves, for a
    metric that is fitted to images that were not trained on), `size` (pixels), `gray`, and `augment` ("flip", "crop":
    for training batches).
    """
    registry = registry or Registry()
    plugin = registry.find("dataset", name)
    form = _Form.of(plugin, plugin.parse_options(options), data)
    shared = form.shared
    if shared["size"] is not None and not 1 <= shared["size"] <= LARGEST_SIDE:
        raise DataError(f"size must be between 1 and {LARGEST_SIDE} pixels, got {shared['size']}")
    dataset = cache.opened(form.folder)
    if dataset is None:
        _done(plugin, registry, form.job("prepare"), progress)
        dataset = cache.opened(form.folder)
    if dataset is None:
        raise DataError(f"{form.folder}: the data changed while it was being prepared; try again")
    if shared.get("classes") is not None:
        dataset = view.only_classes(dataset, shared["classes"])
    if shared["validation"] is not None:
        dataset = view.held_out(dataset, shared["validation"])
    if shared.get("holdout") is not None:
        dataset = view.with_holdout(dataset, shared["holdout"])
    per_class = shared.get("per_class")  # glyphs has an option of its own by this name
    if shared["train"] is not None and per_class is not None:
        raise DataError("give either train or per_class, not both")
    if shared["train"] is not None:
        dataset = replace(dataset, train=view.stratified(dataset, shared["train"], seed))
    if per_class is not None:
        dataset = replace(dataset, train=view.balanced(dataset, per_class, seed))
    return replace(dataset, augment=tuple(shared["augment"]))


def count_classes(name: str, options: dict[str, Any], registry: Registry, data: Path | None = None) -> int:
    """The number of classes, without preparing the dataset: as prepared, as its files say, or as published."""
    plugin = registry.find("dataset", name)
    form = _Form.of(plugin, options, data)
    available = cache.classes_of(form.folder)
    if available is None:
        try:
            available = int(_done(plugin, registry, form.job("count"), lambda name, done, total: None))
        except MissingDataError:
            available = plugin.constants.get("CLASSES")
            if available is None:
                raise
    chosen = len(view.chosen_classes(available, form.shared.get("classes")))
    share = form.shared.get("validation")
    return chosen if share is None or form.own.get("task") not in UNSEEN else view.learned_classes(chosen, share)


def is_available(name: str, options: dict[str, Any], registry: Registry, data: Path | None = None) -> bool:
    """Whether the files of a dataset, or its prepared form, are in the data folder. Prepares nothing."""
    plugin = registry.find("dataset", name)
    form = _Form.of(plugin, options, data)
    if cache.opened(form.folder):
        return True
    try:
        _done(plugin, registry, form.job("count"), lambda *_: None)
    except MissingDataError:
        return False
    except LossbenchError:  # the files exist; what is wrong with them is reported when they are loaded
        return True
    return True


@dataclass(frozen=True)
class _Form:
    """A requested dataset: its own options, options that every dataset has, and the folder of its arrays."""

    own: dict[str, Any]
    shared: dict[str, Any]
    root: Path
    folder: Path

    @classmethod
    def of(cls, plugin: Plugin, options: Mapping[str, Any], data: str | os.PathLike[str] | None) -> _Form:
        """An option that the plugin declares is its own, even if every dataset has one by that name."""
        shared = {name: value for name, value in options.items() if name in SHARED_DATASET_OPTIONS.keys() - plugin.own}
        own = {name: value for name, value in options.items() if name not in shared}
        root = data_folder(data)
        size, gray = shared.get("size"), shared.get("gray", False)
        return cls(own, shared, root, cache.place(plugin, own | {"size": size, "gray": gray}, root))

    def job(self, task: str) -> dict[str, Any]:
        """The job of a process that loads the plugin."""
        place = {"root": str(self.root.absolute()), "folder": str(self.folder)}
        return {
            "task": task,
            "own": self.own,
            "size": self.shared.get("size"),
            "gray": self.shared.get("gray"),
            **place,
        }


def _done(plugin: Plugin, registry: Registry, job: dict[str, Any], progress: cache.Progress) -> Any:
    """Let a plugin load its data: a built-in one in this process, any other in a separate process."""
    if plugin.built_in:
        return done_apart(plugin, job, progress)
    return apart.run(done_apart, plugin, registry, job, progress)


def done_apart(plugin: Plugin, job: Mapping[str, Any], progress: cache.Progress) -> Any:
    """Load a dataset, to count its classes or to prepare its arrays."""
    root, folder = Path(job["root"]), Path(job["folder"]).absolute()  # before a plugin changes the working folder
    own = {name: plugin.own[name].parse(value) if name in plugin.own else value for name, value in job["own"].items()}
    given = _loaded(plugin, root, own)
    if job["task"] == "count":
        return contract.counted(given, plugin.path)
    loaded = contract.checked(given, plugin.path, own.get("task"))
    # A file that the plugin or an option names counts as a source, whether or not `load` says so.
    sources = dict.fromkeys((*loaded.sources, *plugin.data_files(own, root)))
    loaded = replace(loaded, sources=tuple(sources))
    cache.prepare(loaded, folder, size=job["size"], gray=job["gray"], progress=progress)
    return True


def _loaded(plugin: Plugin, root: Path, own: dict[str, Any]) -> Any:
    """The result of the plugin's `load`; an exception becomes a DataError with the line in its file."""
    try:
        return plugin.load()(root, **own)
    except LossbenchError:
        raise
    except OSError as error:
        raise DataError(
            f"{plugin.name}: {error.filename or root} cannot be read ({error.strerror or error})"
        ) from error
    except (Exception, SystemExit) as error:
        lines = [at.lineno for at in traceback.extract_tb(error.__traceback__) if at.filename == str(plugin.path)]
        place = ":".join(map(str, (plugin.path, *lines[-1:])))
        why = " ".join(str(error).split())  # some messages have several lines
        raise DataError(f"{place}: load fails ({type(error).__name__}: {why})") from error
