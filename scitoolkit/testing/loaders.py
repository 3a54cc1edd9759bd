"""A loader over tensors in memory that keeps the Loader contract; for tests and small data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from scitoolkit.core.errors import CheckpointError, ConfigError


class TensorLoader:
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
        self,
        tensors: Mapping[str, Tensor],
        batch_size: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        if batch_size % world_size:
            raise ConfigError(f"batch_size {batch_size} is not divisible by {world_size} processes")
        self._tensors, self._batch_size = dict(tensors), batch_size
        self._seed, self._shuffle = seed, shuffle
        self._rank, self._world = rank, world_size
        self._samples = len(next(iter(self._tensors.values())))
        self._epoch, self._cursor = 0, 0
        self._handed_out = 0

    def __len__(self) -> int:
        """Return the number of global batches in an epoch."""
        return -(-self._samples // self._batch_size)

    def __iter__(self) -> Iterator[dict[str, Tensor]]:
        """Iterate over the rest of the epoch."""
        order = self._order()
        while self._cursor < len(self):
            start = self._cursor * self._batch_size
            batch = self._share(order[start : start + self._batch_size])
            self._cursor += 1
            self._handed_out += 1
            yield batch

    def set_epoch(self, epoch: int) -> None:
        """Move to the first batch of an epoch."""
        self._epoch, self._cursor = epoch, 0

    def state_dict(self) -> dict[str, Any]:
        """Return the cursor."""
        return {
            "epoch": self._epoch,
            "cursor": self._cursor,
            "seed": self._seed,
            "samples": self._samples,
            "batch_size": self._batch_size,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Move to a saved cursor.

        Raises:
            CheckpointError: it was saved over other data, batches or seed.
        """
        own = self.state_dict()
        for key in ("seed", "samples", "batch_size"):
            if state[key] != own[key]:
                raise CheckpointError(f"loader {key} was {state[key]}, it is {own[key]} now")
        self._epoch, self._cursor = int(state["epoch"]), int(state["cursor"])

    def explain(self) -> dict[str, Any]:
        """Return samples and batches; nothing is read from a file."""
        return {"samples": self._samples, "batches": len(self), "bytes_read": 0}

    def stats(self) -> dict[str, Any]:
        """Return the batches handed out."""
        return {"batches": self._handed_out, "bytes_read": 0}

    def _order(self) -> Tensor:
        if not self._shuffle:
            return torch.arange(self._samples)
        generator = np.random.default_rng([self._seed, self._epoch])
        return torch.from_numpy(generator.permutation(self._samples))

    def _share(self, indices: Tensor) -> dict[str, Tensor]:
        bounds = [len(indices) * r // self._world for r in (self._rank, self._rank + 1)]
        own = indices[bounds[0] : bounds[1]]
        filler = len(own) == 0
        batch = {k: t[indices[:1] if filler else own] for k, t in self._tensors.items()}
        if self._world > 1:
            batch["num_valid"] = torch.tensor(0 if filler else len(own))
        return batch
