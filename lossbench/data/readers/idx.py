"""IDX, the file format of MNIST and Fashion-MNIST: big-endian sizes, then the bytes; plain or gzipped."""

from __future__ import annotations

import gzip
import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from lossbench.core import files
from lossbench.core.errors import DataError
from lossbench.data.dataset import Dataset, Split, missing

UNSIGNED_BYTE = 8


def load_idx(folder: Path, name: str, classes: int) -> Dataset:
    """The four files in `folder`: train-images-idx3-ubyte, t10k-labels-idx1-ubyte and so on."""
    found = {}
    for part in ("train", "t10k"):
        for what in ("images-idx3", "labels-idx1"):
            stem = folder / f"{part}-{what}-ubyte"
            # unpacked by some tools as train-images.idx3-ubyte
            choices = [stem, stem.with_name(f"{part}-{what.replace('-', '.', 1)}-ubyte")]
            choices += [choice.with_name(f"{choice.name}.gz") for choice in choices]
            path = next((choice for choice in choices if choice.is_file()), None)
            if path is None:
                raise missing(name, stem)
            found[part, what] = path
    splits = {}
    for part in ("train", "t10k"):
        images, labels = read_idx(found[part, "images-idx3"], 3), read_idx(found[part, "labels-idx1"], 1)
        if len(images) != len(labels) or labels.max() >= classes:
            raise DataError(f"{found[part, 'labels-idx1']}: does not fit {found[part, 'images-idx3'].name}")
        splits[part] = Split.of(images[..., None], labels)
    return Dataset(splits["train"], splits["t10k"], classes, sources=tuple(found.values()))


def read_idx(path: Path, dimensions: int) -> NDArray[np.uint8]:
    """The array in an IDX file of unsigned bytes."""
    try:
        content = gzip.decompress(files.content(path)) if path.suffix == ".gz" else files.content(path)
    except (OSError, EOFError) as error:
        raise DataError(f"{path}: cannot be read ({error})") from error
    start = 4 + 4 * dimensions
    magic = [0, 0, UNSIGNED_BYTE, dimensions]
    shape = [int(size) for size in np.frombuffer(content[4:start], dtype=">u4")]
    if list(content[:4]) != magic or len(content) != start + math.prod(shape):
        raise DataError(f"{path}: is truncated, or not an IDX file of {dimensions} dimensions")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)
