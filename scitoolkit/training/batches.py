"""Adapter from a torch DataLoader to the loader contract."""

from __future__ import annotations

import contextlib
import copy
import random
import zlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler, IterableDataset

from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import CheckpointError, ConfigError, DataError
from scitoolkit.core.seeds import derive_seed

ORDER_BITS = 16
"""Bits of the digest of an order that ranks compare in each step."""


class _RecordedOrder:
    """Sampler of a DataLoader that keeps a digest of all indices that were drawn so far."""

    def __init__(self, sampler: Any) -> None:
        self._sampler = sampler
        self.digests: list[int] = []

    def __len__(self) -> int:
        return len(self._sampler)

    def __iter__(self) -> Iterator[Any]:
        self.digests, digest = [], 0
        for indices in self._sampler:
            digest = zlib.crc32(repr(indices).encode(), digest)
            self.digests.append(digest & (1 << ORDER_BITS) - 1)
            yield indices

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)


class DataLoaderBatches:
    """Adapter of a torch DataLoader to the loader contract.

    The order within an epoch follows from (seed, epoch) if the sampler draws from the generator of
    the DataLoader or the sampler, or from the default generator of torch, Python or numpy.
    Resuming in the middle of an epoch reads and discards the batches before it. With several
    processes, each reads every batch and keeps its share of the rows; the processes compare the
    indices in each step.

    Args:
        loader: yields global batches, `dict[str, Tensor]`, a named tuple, or a tuple of tensors,
            whose keys are then "0", "1", ...; the first dimension of a tensor is the sample.
        seed: seed of the order.
        rank, world: rank of this process and number of processes.

    Raises:
        ConfigError: the number of batches is unknown, or the loader has a `DistributedSampler`.

    Example:
        >>> rows = [{"x": torch.tensor(float(i))} for i in range(4)]
        >>> batches = DataLoaderBatches(DataLoader(rows, batch_size=2), seed=0)
        >>> [batch["x"].tolist() for batch in batches]
        [[0.0, 1.0], [2.0, 3.0]]
    """

    def __init__(
        self, loader: DataLoader[Any], seed: int, *, rank: int = 0, world: int = 1
    ) -> None:
        self._loader, self._seed = loader, seed
        self._order: _RecordedOrder | None = None
        if world > 1 and not isinstance(loader.dataset, IterableDataset):
            # The attribute is fixed after construction, so a copy gets the recording sampler.
            self._loader = copy.copy(loader)
            name = "sampler" if loader.batch_sampler is None else "batch_sampler"
            self._order = _RecordedOrder(getattr(loader, name))
            self._loader.__dict__[name] = self._order
        self._rank, self._world = rank, world
        if isinstance(loader.sampler, DistributedSampler):
            raise ConfigError(
                "the DataLoader has a DistributedSampler, so its batches are not global batches",
                fix="remove the sampler: each process takes its share of every batch",
            )
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
        # The global generators are restored afterwards, so that a resumed model draws the same
        # random numbers however many batches were read again.
        with _seeded(derive_seed(self._seed, self._epoch), self._generators()):
            iterator = iter(self._loader)
            ahead = next(iterator, None)
            for _ in range(self._cursor):
                ahead = next(iterator, None)
        while ahead is not None:
            self._cursor += 1
            self._handed_out += 1
            yield _share(_named(ahead), self._rank, self._world)
            ahead = next(iterator, None)

    @property
    def order_digest(self) -> int:
        """Digest of the indices up to the batch that was handed out last, equal on all ranks."""
        digests = self._order.digests if self._order is not None else []
        return digests[min(self._cursor, len(digests)) - 1] if digests and self._cursor else 0

    def _generators(self) -> list[torch.Generator]:
        """Return the generators of the loader and its samplers."""
        loader = self._loader
        inner = getattr(loader.batch_sampler, "sampler", None)
        owners = (loader, loader.sampler, loader.batch_sampler, inner)
        generators = [getattr(owner, "generator", None) for owner in owners]
        return [g for g in generators if isinstance(g, torch.Generator)]

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
        """Return the number of batches; the reads of a torch dataset are unknown."""
        return {"batches": len(self)}

    def stats(self) -> dict[str, Any]:
        """Return the batches handed out."""
        return {"batches": self._handed_out}


@contextlib.contextmanager
def _seeded(seed: int, generators: list[torch.Generator]) -> Iterator[None]:
    """Seed all generators that an order may come from; restore the global ones afterwards."""
    python, numbers = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        for generator in generators:
            generator.manual_seed(seed)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numbers)


def as_loader(loader: Any, seed: int, rank: int, world: int) -> Any:
    """Return `loader`, wrapped in `DataLoaderBatches` if it is a torch DataLoader.

    Raises:
        ConfigError: `loader` does not implement the loader contract.
    """
    if not isinstance(loader, DataLoader):
        missing = [
            n for n in ("set_epoch", "state_dict", "load_state_dict") if n not in dir(loader)
        ]
        if missing:
            raise ConfigError(
                f"{type(loader).__name__} is not a loader: it has no {', '.join(missing)}",
                allowed="a `scitoolkit.core.contracts.Loader` or a torch DataLoader",
            )
        return loader
    return DataLoaderBatches(loader, seed, rank=rank, world=world)


def _named(batch: Any) -> Batch:
    """Return a batch as a dict of tensors; the keys of a sequence are its positions or names."""
    if isinstance(batch, tuple) and (names := getattr(batch, "__match_args__", ())):
        batch = dict(zip(names, batch, strict=True))  # a named tuple
    elif isinstance(batch, list | tuple):
        batch = {str(position): value for position, value in enumerate(batch)}
    if isinstance(batch, Mapping) and all(isinstance(v, Tensor) for v in batch.values()):
        return dict(batch)
    what = type(batch).__name__
    if isinstance(batch, Mapping):
        key, value = next((k, v) for k, v in batch.items() if not isinstance(v, Tensor))
        what = f"{type(value).__name__} as {key!r}"
    raise DataError(
        f"the DataLoader yields a {what}; a batch must be a dict or a tuple of tensors",
        fix="collate_fn=lambda rows: {'x': ..., 'y': ...}",
    )


def _share(batch: Batch, rank: int, world: int) -> Batch:
    """Return a rank's rows of a batch; a filler row if there are fewer rows than ranks.

    Raises:
        DataError: the first dimensions of the tensors differ.
    """
    if world == 1:
        return batch
    lengths = {key: len(value) for key, value in batch.items() if value.dim()}
    rows = max(lengths.values(), default=0)
    other = next((key for key, length in lengths.items() if length != rows), None)
    if other is not None:
        raise DataError(
            f"batch tensor {other!r} has {lengths[other]} rows, others have {rows}: which are the "
            f"samples to share among {world} processes is unknown",
            allowed="tensors whose first dimension is the sample, and 0-dimensional ones",
            fix="keep tensors without a sample dimension in the task",
        )
    start, stop = rank * rows // world, (rank + 1) * rows // world
    own_rows = slice(start, stop) if stop > start else slice(0, 1)
    share = {k: v[own_rows] if v.dim() else v for k, v in batch.items()}
    return {**share, "num_valid": torch.tensor(stop - start)}
