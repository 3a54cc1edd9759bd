"""Batches of a plain torch DataLoader, with the loader contract where that can be kept."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.utils.data import DataLoader

from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import CheckpointError, ConfigError, DataError
from scitoolkit.core.seeds import derive_seed


class DataLoaderBatches:
    """Batches of a torch DataLoader on one process.

    The order of an epoch depends on (seed, epoch) where the sampler draws from torch's default
    generator. A resume in the middle of an epoch reads the batches before it again and drops them.

    Args:
        loader: gives `dict[str, Tensor]`; see its `collate_fn`.
        seed: of the order.

    Raises:
        ConfigError: the number of batches is unknown.

    Example:
        >>> rows = [{"x": torch.tensor(float(i))} for i in range(4)]
        >>> batches = DataLoaderBatches(DataLoader(rows, batch_size=2), seed=0)
        >>> [batch["x"].tolist() for batch in batches]
        [[0.0, 1.0], [2.0, 3.0]]
    """

    def __init__(self, loader: DataLoader[Any], seed: int) -> None:
        self._loader, self._seed = loader, seed
        self._epoch, self._cursor, self._handed_out = 0, 0, 0
        try:
            len(loader)
        except TypeError:
            raise ConfigError(
                "a DataLoader over an IterableDataset without `__len__` cannot be trained on",
                fix="give the dataset a length, or use TensorLoader",
            ) from None

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        return len(self._loader)

    def __iter__(self) -> Iterator[Batch]:
        """Iterate over the rest of the epoch."""
        # The global generator goes on as if nothing was drawn, so a resumed model sees the same
        # random numbers whatever was read again.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(derive_seed(self._seed, self._epoch))
            iterator = iter(self._loader)
            ahead = next(iterator, None)
            for _ in range(self._cursor):
                ahead = next(iterator, None)
        while ahead is not None:
            self._cursor += 1
            self._handed_out += 1
            yield _checked(ahead)
            ahead = next(iterator, None)

    def set_epoch(self, epoch: int) -> None:
        """Move to the first batch of an epoch."""
        self._epoch, self._cursor = epoch, 0

    def state_dict(self) -> dict[str, Any]:
        """Return the cursor."""
        return {"epoch": self._epoch, "cursor": self._cursor, "batches": len(self)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Move to a saved cursor.

        Raises:
            CheckpointError: an epoch had another number of batches.
        """
        if state["batches"] != len(self):
            raise CheckpointError(f"an epoch had {state['batches']} batches, it has {len(self)}")
        self._epoch, self._cursor = int(state["epoch"]), int(state["cursor"])

    def explain(self) -> dict[str, Any]:
        """Return the number of batches; what a dataset reads is unknown."""
        return {"batches": len(self)}

    def stats(self) -> dict[str, Any]:
        """Return the batches handed out."""
        return {"batches": self._handed_out}


def as_loader(loader: Any, seed: int, world: int) -> Any:
    """Return a loader that keeps the contract, given one or a torch DataLoader.

    Raises:
        ConfigError: a DataLoader on several processes, or something else than a loader.
    """
    if not isinstance(loader, DataLoader):
        missing = [
            n for n in ("set_epoch", "state_dict", "load_state_dict") if n not in dir(loader)
        ]
        if missing:
            raise ConfigError(
                f"{type(loader).__name__} is no loader: it has no {', '.join(missing)}",
                allowed="a `scitoolkit.core.contracts.Loader` or a torch DataLoader",
            )
        return loader
    if world > 1:
        raise ConfigError(
            f"a torch DataLoader on {world} processes: every process would read all samples",
            allowed="a loader that shares each batch, such as TensorLoader",
            fix="train on one process, or replace the DataLoader",
        )
    return DataLoaderBatches(loader, seed)


def _checked(batch: Any) -> Batch:
    if isinstance(batch, Mapping):
        return dict(batch)
    raise DataError(
        f"the DataLoader gives a {type(batch).__name__}, a batch is a dict of tensors",
        fix="a dataset of dicts, or collate_fn=lambda rows: {'x': ..., 'y': ...}",
    )
