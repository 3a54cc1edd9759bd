"""A loader over tensors in memory that keeps the Loader contract; for tests and small data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scitoolkit.core.contracts import Batch
from scitoolkit.io.loader.epoch_loader import EpochLoader


class TensorLoader(EpochLoader):
    """Batches of tensors that share their first dimension.

    The samples of a global batch depend on (seed, epoch, batch size) alone. A rank takes a
    contiguous share of each; in a last batch with fewer samples than ranks some ranks get one
    sample as a filler, with `num_valid` 0.

    Args:
        tensors: by batch key, each of shape (N, ...).
        batch_size: samples per global batch.
        seed: of the shuffling.
        shuffle: draw a new order every epoch.
        rank: this process.
        world_size: number of processes; must divide `batch_size`.

    Raises:
        ConfigError: `world_size` does not divide `batch_size`.

    Example:
        >>> loader = TensorLoader({"x": torch.arange(5)}, batch_size=2, shuffle=False)
        >>> [batch["x"].tolist() for batch in loader]
        [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self, tensors: Mapping[str, Tensor], batch_size: int, *, seed: int = 0,
        shuffle: bool = True, rank: int = 0, world_size: int = 1,
    ) -> None:  # fmt: skip
        num_samples = len(next(iter(tensors.values())))
        super().__init__(num_samples, batch_size, seed=seed, rank=rank, world_size=world_size)
        self._tensors, self._shuffle = dict(tensors), shuffle

    def explain(self) -> dict[str, Any]:
        """Return samples and batches; nothing is read from a file."""
        return {**super().explain(), "bytes_read": 0}

    def stats(self) -> dict[str, Any]:
        """Return the batches handed out."""
        return {**super().stats(), "bytes_read": 0}

    def _order(self, epoch: int) -> np.ndarray:
        if not self._shuffle:
            return np.arange(self._set["samples"])
        return np.random.default_rng([self._set["seed"], epoch]).permutation(self._set["samples"])

    def _batch(self, chosen: np.ndarray) -> Batch:
        bounds = [len(chosen) * r // self._world for r in (self._rank, self._rank + 1)]
        own = torch.from_numpy(chosen[bounds[0] : bounds[1]])
        filler = len(own) == 0
        first = torch.from_numpy(chosen[:1])
        batch = {k: t[first if filler else own] for k, t in self._tensors.items()}
        if self._world > 1:
            batch["num_valid"] = torch.tensor(0 if filler else len(own))
        return batch
