"""Loader of tensors in memory, for tests and small data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scitoolkit.core.contracts import Batch
from scitoolkit.io.loader.epoch_loader import EpochLoader


class TensorLoader(EpochLoader):
    """Loader of batches of tensors with a common first dimension.

    The samples of a global batch depend on (seed, epoch, batch size) alone. Each rank takes a
    contiguous share; if the last batch has fewer samples than ranks, some ranks receive one filler
    sample with `num_valid` 0.

    Args:
        tensors: tensors by batch key, each of shape (N, ...).
        batch_size: samples per global batch.
        seed: seed of the shuffling.
        shuffle: draw a new order every epoch.
        rank: rank of this process.
        world_size: number of processes; must divide `batch_size`.

    Raises:
        ConfigError: `world_size` does not divide `batch_size`.

    Example:
        >>> loader = TensorLoader({"x": torch.arange(5)}, batch_size=2, shuffle=False)
        >>> [batch["x"].tolist() for batch in loader]
        [[0, 1], [2, 3], [4]]
    """

    def __init__(
        self,
        tensors: Mapping[str, Tensor],
        batch_size: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        num_samples = len(next(iter(tensors.values())))
        super().__init__(num_samples, batch_size, seed=seed, rank=rank, world_size=world_size)
        self._tensors, self._shuffle = dict(tensors), shuffle

    def explain(self) -> dict[str, Any]:
        """Return samples, batches and bytes to read, which are 0."""
        return {**super().explain(), "bytes_read": 0}

    def stats(self) -> dict[str, Any]:
        """Return the number of yielded batches, and bytes read, which are 0."""
        return {**super().stats(), "bytes_read": 0}

    def _order(self, epoch: int) -> np.ndarray:
        if not self._shuffle:
            return np.arange(self._set["samples"])
        return np.random.default_rng([self._set["seed"], epoch]).permutation(self._set["samples"])

    def _batch(self, chosen: np.ndarray) -> Batch:
        bounds = [len(chosen) * r // self._world for r in (self._rank, self._rank + 1)]
        share = torch.from_numpy(chosen[bounds[0] : bounds[1]])
        filler = len(share) == 0
        first = torch.from_numpy(chosen[:1])
        batch = {k: t[first if filler else share] for k, t in self._tensors.items()}
        if self._world > 1:
            batch["num_valid"] = torch.tensor(0 if filler else len(share))
        return batch
