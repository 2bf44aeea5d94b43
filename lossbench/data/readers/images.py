"""Image files and arrays → uint8 blocks of one size. Pillow decodes in threads: it releases Python's lock."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lossbench.core.errors import DataError
from lossbench.core.files import is_folder, opened
from lossbench.data.dataset import Images

if TYPE_CHECKING:
    from PIL.Image import Image

Align = Callable[[NDArray[np.uint8], int], NDArray[np.uint8] | None]

BLOCK = 256  # images in memory at once while a set is prepared
SUFFIXES = frozenset({".jpg", ".jpeg", ".png", ".bmp", ".webp", ".ppm", ".pgm", ".tif", ".tiff", ".gif"})


@dataclass(frozen=True)
class Pictures:
    """Image files, in colour unless `gray`.

    `crop` keeps the central square of that many pixels (at most the shorter side), `size` resizes to that many; `align`
    replaces both where it finds a face: H×W×3 pixels and the size → S×S×3, or None.
    """

    paths: Sequence[Path]
    gray: bool = False
    crop: int | None = None
    size: int | None = None
    align: Align | None = None

    @cached_property
    def shape(self) -> tuple[int, int, int, int]:
        """N×H×W×C, of the first picture; all others must have the same."""
        return len(self.paths), *self.read(self.paths[0]).shape

    def blocks(self) -> Iterator[NDArray[np.uint8]]:
        with ThreadPoolExecutor(os.cpu_count()) as pool:
            for start in range(0, len(self.paths), BLOCK):
                yield np.stack(list(pool.map(self.checked, self.paths[start : start + BLOCK])))

    def checked(self, path: Path) -> NDArray[np.uint8]:
        found = self.read(path)
        if found.shape != self.shape[1:]:
            height, width, _ = found.shape
            raise DataError(
                f"{path}: is {width}×{height}, but {self.paths[0].name} is {self.shape[2]}×{self.shape[1]}; "
                "set the dataset's option 'size' to resize all"
            )
        return found

    def read(self, path: Path) -> NDArray[np.uint8]:
        """One picture, H×W×C."""
        from PIL import Image

        try:
            with os.fdopen(opened(path), "rb") as handle, Image.open(handle) as picture:
                if self.align and self.size:
                    found = self.align(_as_array(picture, False, None, None), self.size)
                    if found is not None:
                        return _as_array(Image.fromarray(found), self.gray, None, None)
                elif self.size and not self.crop:
                    picture.draft(None, (self.size, self.size))  # decodes a JPEG at the next larger scale
                return _as_array(picture, self.gray, self.crop, self.size)
        except DataError:
            raise
        except Exception as error:  # Pillow raises nearly anything for a damaged file
            raise DataError(f"{path}: cannot be read as an image ({error})") from error


@dataclass(frozen=True)
class Resized:
    """Images at another size, or gray."""

    images: Images
    size: int | None
    gray: bool

    @property
    def shape(self) -> tuple[int, int, int, int]:
        count, height, width, channels = self.images.shape
        return count, self.size or height, self.size or width, 1 if self.gray else channels

    def blocks(self) -> Iterator[NDArray[np.uint8]]:
        from PIL import Image

        for block in self.images.blocks():
            squeezed = block[..., 0] if block.shape[-1] == 1 else block
            yield np.stack([_as_array(Image.fromarray(one), self.shape[-1] == 1, None, self.size) for one in squeezed])


@dataclass(frozen=True)
class Present:
    """Images in an array."""

    array: NDArray[np.uint8]

    @property
    def shape(self) -> tuple[int, int, int, int]:
        count, height, width, channels = self.array.shape
        return count, height, width, channels

    def blocks(self) -> Iterator[NDArray[np.uint8]]:
        for start in range(0, len(self.array), 4096):
            yield self.array[start : start + 4096]


def at_size(images: Images | NDArray[np.uint8], size: int | None, gray: bool) -> Images:
    """The images as the options `size` and `gray` want them."""
    if isinstance(images, np.ndarray):
        images = Present(images)
    if isinstance(images, Pictures):
        return replace(images, size=size or images.size, gray=gray or images.gray)
    channels = images.shape[-1]
    if not size and not (gray and channels > 1):
        return images
    if channels not in (1, 3):
        raise DataError(f"'size' and 'gray' need images of 1 or 3 channels, these have {channels}")
    return Resized(images, size, gray)


def class_folders(root: Path) -> dict[str, list[Path]]:
    """The pictures of a tree of class folders, by class, all sorted; a class may have subfolders."""
    if not is_folder(root):
        raise DataError(f"{root}: no such directory")
    found = {}
    try:
        for folder in sorted(entry.path for entry in os.scandir(root) if is_folder(entry) and entry.name[0] != "."):
            if pictures := sorted(_pictures(folder, (_identity(root),))):
                found[Path(folder).name] = pictures
    except OSError as error:
        raise DataError(f"{error.filename or root}: cannot be read ({error.strerror})") from error
    if not found:
        raise DataError(f"{root}: has no class folders with pictures ({', '.join(sorted(SUFFIXES))})")
    return found


def labelled(classes: Sequence[Sequence[Path]]) -> tuple[list[Path], NDArray[np.int64]]:
    """All paths in one list, and the number of the class of each."""
    labels = np.repeat(np.arange(len(classes), dtype=np.int64), [len(paths) for paths in classes])
    return list(itertools.chain.from_iterable(classes)), labels


def _pictures(folder: str, above: tuple[tuple[int, int], ...]) -> Iterator[Path]:
    """The pictures in a folder and its subfolders; `above` are the folders that contain it."""
    if (here := _identity(folder)) in above:
        raise DataError(f"{folder}: is a link to a folder that contains it; remove the link")
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith("."):
                continue
            if is_folder(entry):
                yield from _pictures(entry.path, (*above, here))
            elif os.path.splitext(entry.name)[1].lower() in SUFFIXES:  # noqa: PTH122  # a Path each costs more than the rest
                yield Path(entry.path)


def _identity(folder: str | os.PathLike[str]) -> tuple[int, int]:
    """Equal for all paths that lead to the same folder."""
    found = os.stat(folder)  # noqa: PTH116  # as above
    return found.st_dev, found.st_ino


def _as_array(picture: Image, gray: bool, crop: int | None, size: int | None) -> NDArray[np.uint8]:
    from PIL import Image

    picture = picture.convert("L" if gray else "RGB")
    if crop:
        side = min(crop, *picture.size)
        left, top = (picture.width - side) // 2, (picture.height - side) // 2
        picture = picture.crop((left, top, left + side, top + side))
    if size and picture.size != (size, size):
        picture = picture.resize((size, size), Image.Resampling.BILINEAR)  # antialiased when it shrinks
    array = np.asarray(picture, dtype=np.uint8)
    return array[..., None] if array.ndim == 2 else array
