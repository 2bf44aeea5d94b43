"""The batches of a seed, as tensors that a backbone takes."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from lossbench.core.model import Cell
from lossbench.core.streams import derive
from lossbench.data import Dataset, Split
from lossbench.data.subsets import augmented


class Batches:
    """The infinite stream of batches for one seed: epochs of shuffled images, all batches full.

    With `per_class`, each batch has that many examples of batch / per_class random classes instead. Batch t is a
    function of (seed, t): resumed training sees the same batches as uninterrupted training.
    """

    def __init__(
        self,
        split: Split,
        batch: int,
        seed: int,
        augment: tuple[str, ...] = (),
        device: str = "cpu",
        per_class: int | None = None,
    ) -> None:
        self.split, self.batch, self.seed, self.augment, self.device = split, batch, seed, augment, device
        self.per_class = per_class
        self._orders: dict[int, NDArray[np.int64]] = {}
        self._members: list[NDArray[np.int64]] = []  # the examples of each class
        if per_class:
            order = np.argsort(split.labels, kind="stable")
            starts = np.flatnonzero(np.diff(split.labels[order])) + 1
            self._members = np.split(order, starts)
            if batch // per_class > len(self._members):
                raise ValueError(
                    f"a batch of {batch} with {per_class} per class has {batch // per_class} classes; "
                    f"the training examples have only {len(self._members)}"
                )

    @classmethod
    def of(cls, cell: Cell, dataset: Dataset) -> Batches:
        """The batches that a cell is trained on."""
        schedule = cell.schedule
        return cls(dataset.train, schedule.batch, cell.seed, dataset.augment, cell.device, schedule.per_class)

    @property
    def small_classes(self) -> int:
        """The number of classes with fewer than `per_class` examples, which batches repeat."""
        return sum(len(members) < (self.per_class or 0) for members in self._members)

    def at(self, step: int) -> tuple[Tensor, Tensor]:
        index = self.indices(step)
        images = self.split.gather(index)
        if self.augment:
            images = augmented(images, self.augment, np.random.default_rng(derive(self.seed, "augment", step)))
        return as_input(images, self.device), torch.from_numpy(self.split.labels[index]).to(self.device)

    def indices(self, step: int) -> NDArray[np.int64]:
        if self.per_class:
            return self._balanced(step, self.per_class)
        size = len(self.split)
        epoch, start = divmod(step * self.batch, size)
        if start + self.batch <= size:
            return self._order(epoch)[start : start + self.batch]
        place = np.arange(start, start + self.batch)
        return np.concatenate(
            [self._order(epoch + turn)[place[place // size == turn] % size] for turn in range(place[-1] // size + 1)]
        )

    def _balanced(self, step: int, each: int) -> NDArray[np.int64]:
        """Different classes, drawn at random, with `each` examples; a class with fewer repeats some of them."""
        rng = np.random.default_rng(derive(self.seed, "balanced", step))
        classes = rng.choice(len(self._members), self.batch // each, replace=False)
        chosen = (self._members[index] for index in classes)
        return np.concatenate([rng.choice(members, each, replace=len(members) < each) for members in chosen])

    def _order(self, epoch: int) -> NDArray[np.int64]:
        if epoch not in self._orders:
            self._orders = {old: order for old, order in self._orders.items() if old == epoch - 1}
            rng = np.random.default_rng(derive(self.seed, "order", epoch))
            self._orders[epoch] = rng.permutation(len(self.split))
        return self._orders[epoch]


def as_input(images: NDArray[np.uint8], device: str = "cpu") -> Tensor:
    """Images (B×H×W×C, uint8) as a backbone takes them: (v − 127.5) / 128 in float32, (B, channels, height, width).

    They are copied to the device as bytes and converted there: a quarter of the transfer.
    """
    return torch.from_numpy(images).to(device).permute(0, 3, 1, 2).float().sub_(127.5).div_(128)
