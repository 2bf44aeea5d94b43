"""Name → arrays. A dataset is two splits of uint8 images with int64 labels; nothing here imports torch.

load_dataset("mnist").train.images       uint8, N×H×W×C, mapped from the prepared file
load_dataset("mnist").train.labels       int64, N
load_dataset("mnist", classes=5, train=100, seed=0)
load_dataset("lfw", task="verification").pairs      int64, P×3: image a, image b, same? over test.images
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lossbench.core.errors import DataError, LossbenchError, MissingDataError
from lossbench.data import apart, cache, contract
from lossbench.data import subsets as view
from lossbench.data.dataset import Dataset, Images, Split
from lossbench.plugins.registry import SHARED_DATASET_OPTIONS, Plugin, Registry

__all__ = ["Dataset", "Images", "Split", "count_classes", "data_folder", "is_here", "load_dataset"]

LARGEST_SIDE = 4096  # pixels; only keeps a slip of the pen from filling the disk


def data_folder(given: str | os.PathLike[str] | None = None) -> Path:
    """Where datasets lie: `given`, else $LOSSBENCH_DATA, else the user's cache folder."""
    return Path(given or os.environ.get("LOSSBENCH_DATA") or cache.user_cache())


def load_dataset(
    name: str,
    *,
    seed: int = 0,
    data: str | os.PathLike[str] | None = None,
    registry: Registry | None = None,
    progress: cache.Progress = lambda name, done, total: None,
    **options: Any,
) -> Dataset:
    """A dataset by name; prepared as memory-mapped arrays the first time, opened in milliseconds ever after.

    Every dataset takes `train` (a stratified subset of that many images, drawn by `seed`) or `per_class` (that many of
    each class), `classes` (the first k, or those listed), `validation` (a share of the training images that is tested
    on in place of the test set), `size` (pixels), `gray`, and `augment` ("flip", "crop": for training batches).
    """
    plugin = (registry or Registry()).find("dataset", name)
    values = plugin.parse_options(options)
    own, shared = _divided(plugin, values)
    if shared["size"] is not None and not 1 <= shared["size"] <= LARGEST_SIDE:
        raise DataError(f"size must be between 1 and {LARGEST_SIDE} pixels, got {shared['size']}")
    folder = cache.place(plugin, own | {"size": shared["size"], "gray": shared["gray"]}, data_folder(data))
    dataset = cache.opened(folder)
    if dataset is None:
        job = {"task": "prepare", "root": str(data_folder(data).absolute()), "own": own, "folder": str(folder)}
        _done(plugin, registry or Registry(), job | {"size": shared["size"], "gray": shared["gray"]}, progress)
        dataset = cache.opened(folder)
    if dataset is None:
        raise DataError(f"{folder}: the data changed while it was being prepared; try again")
    if shared.get("classes") is not None:
        dataset = view.only_classes(dataset, shared["classes"])
    if shared["validation"] is not None:
        dataset = view.held_out(dataset, shared["validation"])
    per_class = shared.get("per_class")  # a set that is drawn has a meaning of its own for it
    if shared["train"] is not None and per_class is not None:
        raise DataError("give either train or per_class, not both")
    if shared["train"] is not None:
        dataset = replace(dataset, train=view.stratified(dataset, shared["train"], seed))
    if per_class is not None:
        dataset = replace(dataset, train=view.balanced(dataset, per_class, seed))
    return replace(dataset, augment=tuple(shared["augment"]))


def count_classes(name: str, options: dict[str, Any], registry: Registry, data: Path | None = None) -> int:
    """The number of classes of a dataset, without preparing it: as prepared, as its files say, or as published."""
    plugin = registry.find("dataset", name)
    own, shared = _divided(plugin, options)
    root = data_folder(data)
    own_form = own | {"size": shared.get("size"), "gray": shared.get("gray", False)}
    available = cache.classes_of(cache.place(plugin, own_form, root))
    if available is None:
        try:
            job = {"task": "count", "root": str(root.absolute()), "own": own}
            available = int(_done(plugin, registry, job, lambda name, done, total: None))
        except MissingDataError:
            available = plugin.constants.get("CLASSES")
            if available is None:
                raise
    chosen = len(view.chosen_classes(available, shared.get("classes")))
    share = shared.get("validation")
    return chosen if share is None or own.get("task") != "verification" else view.learned_classes(chosen, share)


def _done(plugin: Plugin, registry: Registry, job: dict[str, Any], progress: cache.Progress) -> Any:
    """Let a plugin load its data: our own here, any other in a process of its own."""
    return (
        done_apart(plugin, job, progress) if plugin.built_in else apart.run(done_apart, plugin, registry, job, progress)
    )


def done_apart(plugin: Plugin, job: Mapping[str, Any], progress: cache.Progress) -> Any:
    """Load a dataset, to count its classes or to prepare its arrays."""
    root, folder = Path(job["root"]), Path(job.get("folder", "")).absolute()  # before a plugin changes the folder
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
    """What the plugin's `load` returns; what it raises becomes a sentence with the line of its file."""
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


def is_here(name: str, options: dict[str, Any], registry: Registry, data: Path | None = None) -> bool:
    """Whether a dataset can be read: its files are in the data folder, or its prepared form is. Prepares nothing."""
    plugin = registry.find("dataset", name)
    own, shared = _divided(plugin, options)
    root = data_folder(data)
    if cache.opened(cache.place(plugin, own | {"size": shared.get("size"), "gray": shared.get("gray", False)}, root)):
        return True
    try:
        _done(plugin, registry, {"task": "count", "root": str(root.absolute()), "own": own}, lambda *_: None)
    except MissingDataError:
        return False
    except LossbenchError:  # its files are there; what is wrong with them is said when they are read in earnest
        return True
    return True


def _divided(plugin: Plugin, options: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The plugin's own options, and those that every dataset has (an option that it declares itself is its own)."""
    shared = {key: value for key, value in options.items() if key in SHARED_DATASET_OPTIONS and key not in plugin.own}
    return {key: value for key, value in options.items() if key not in shared}, shared
