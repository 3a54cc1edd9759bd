"""Base class of loaders of samples in memory, with an order per epoch and a resumable cursor."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import CheckpointError, ConfigError


class EpochLoader(ABC):
    """Loader of batches from the cursor to the end of an epoch.

    Args:
        num_samples: size of the data set.
        batch_size: samples per global batch.
        seed: of the order.
        rank: this process.
        world_size: number of processes; must divide `batch_size`.
        where: config key of the batch size, for messages.

    Raises:
        ConfigError: `world_size` does not divide `batch_size`.
    """

    def __init__(
        self,
        num_samples: int,
        batch_size: int,
        *,
        seed: int,
        rank: int,
        world_size: int,
        where: str = "batch_size",
    ) -> None:
        if batch_size % world_size:
            raise ConfigError(
                f"{where} {batch_size} is not divisible by {world_size} processes",
                fix=f"{where}={-(-batch_size // world_size) * world_size}",
            )
        self._set = {"seed": seed, "samples": num_samples, "batch_size": batch_size}
        self._rank, self._world = rank, world_size
        self._epoch = self._cursor = self._handed_out = 0

    @abstractmethod
    def _order(self, epoch: int) -> np.ndarray:
        """Return the sample numbers of an epoch in order."""

    @abstractmethod
    def _batch(self, chosen: np.ndarray) -> Batch:
        """Return this rank's share of the global batch of the chosen samples."""

    def __len__(self) -> int:
        """Return the number of global batches per epoch."""
        return -(-self._set["samples"] // self._set["batch_size"])

    def __iter__(self) -> Iterator[Batch]:
        """Iterate over the rest of the epoch."""
        order, size = self._order(self._epoch), self._set["batch_size"]
        while self._cursor < len(self):
            start = self._cursor * size
            batch = self._batch(order[start : start + size])
            self._cursor += 1
            self._handed_out += 1
            yield batch

    def set_epoch(self, epoch: int) -> None:
        """Move to the first batch of an epoch."""
        self._epoch, self._cursor = epoch, 0

    def state_dict(self) -> dict[str, Any]:
        """Return the cursor and the identity of the data set."""
        return {"epoch": self._epoch, "cursor": self._cursor, **self._set}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Move to a saved cursor.

        Raises:
            CheckpointError: the state has another data set, batch size or seed.
        """
        for key, expected in self._set.items():
            if state[key] != expected:
                raise CheckpointError(f"loader {key} was {state[key]}, it is {expected} now")
        self._epoch, self._cursor = int(state["epoch"]), int(state["cursor"])

    def explain(self) -> dict[str, Any]:
        """Return the numbers of samples and batches."""
        return {"samples": self._set["samples"], "batches": len(self)}

    def stats(self) -> dict[str, Any]:
        """Return the number of yielded batches."""
        return {"batches": self._handed_out}
