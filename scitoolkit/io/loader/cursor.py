"""Base class of loaders: cursor, identity of the data set, and counters."""

from __future__ import annotations

import hashlib
import json
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import CheckpointError, ConfigError
from scitoolkit.io.loader.order import EpochOrder
from scitoolkit.io.loader.source import Source

STATE_VERSION = 1


class CursorLoader(ABC):
    """Loader of batches from a cursor, resumable at any world size that divides the batch size.

    Iterating yields the rest of the current epoch. Iterating again after its end repeats the same
    epoch; call `set_epoch` for another order. The cursor counts batches that were yielded; batches
    fetched ahead are read again after a resume.

    Args:
        source: the samples.
        order: of the samples.
        rank: this process.
        world_size: number of processes; must divide the batch size.

    Raises:
        ConfigError: the world size does not divide the batch size.
    """

    def __init__(self, source: Source, order: EpochOrder, rank: int, world_size: int) -> None:
        if world_size < 1 or not 0 <= rank < world_size:
            raise ConfigError(f"rank {rank} of world size {world_size}")
        if order.batch_size % world_size:
            below = order.batch_size - order.batch_size % world_size
            raise ConfigError(
                f"the global batch_size {order.batch_size} cannot be divided among "
                f"{world_size} ranks",
                allowed=f"multiples of {world_size}",
                fix=f"batch_size={below or world_size}",
            )
        self.source: Source = source
        self.order: EpochOrder = order
        self.rank: int = rank
        self.world_size: int = world_size
        self._fingerprint = digest(source.describe())
        self._epoch = self._step = 0
        self._finished = False
        self._iteration = 0
        self._batches = self._samples = 0
        self._waited = 0.0
        self._batch_bytes = 0

    @abstractmethod
    def _batches_from(self, epoch: int, step: int) -> Iterator[Batch]:
        """Yield this rank's share of every batch of `epoch` from `step` on (a generator)."""

    def __len__(self) -> int:
        """Return the number of global batches per epoch."""
        return self.order.num_batches

    def set_epoch(self, epoch: int) -> None:
        """Move the cursor to the first batch of `epoch`."""
        self._move(epoch, 0)

    def _move(self, epoch: int, step: int) -> None:
        self._epoch, self._step, self._finished = epoch, step, False
        self._iteration += 1

    def __iter__(self) -> Iterator[Batch]:
        """Iterate over the rest of the current epoch, from the cursor."""
        self._move(self._epoch, 0 if self._finished else self._step)
        # Read the iteration number here, not at the first `next`, so that of two iterators the
        # later one is valid, whichever is advanced first.
        return self._iterate(self._iteration)

    def _iterate(self, iteration: int) -> Iterator[Batch]:
        batches = self._batches_from(self._epoch, self._step)
        try:
            while True:
                if iteration != self._iteration:
                    raise RuntimeError("the loader was moved or iterated again in the meantime")
                begin = time.perf_counter()
                batch = next(batches, None)
                self._waited += time.perf_counter() - begin
                if batch is None:
                    break
                self._step += 1
                self._count(batch)
                yield batch
        finally:
            batches.close()  # type: ignore[attr-defined]
        self._finished = True

    def _count(self, batch: Batch) -> None:
        tensors = [v for k, v in batch.items() if k != "num_valid"]
        self._batches += 1
        self._samples += len(tensors[0]) if "num_valid" not in batch else 0
        self._batch_bytes = max(self._batch_bytes, sum(t.nbytes for t in tensors))

    def state_dict(self) -> dict[str, Any]:
        """Return the cursor as JSON types below 1 kB; it counts yielded, not fetched, batches."""
        return {
            "version": STATE_VERSION,
            "epoch": self._epoch,
            "step": self._step,
            **self._identity(),
        }

    def _identity(self) -> dict[str, Any]:
        """Return the entries that must be equal when a state is loaded."""
        return {**self.order.identity(), "fingerprint": self._fingerprint}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Move to a saved cursor, at any world size that divides the global batch.

        Raises:
            CheckpointError: the state has another data set, batch size, seed or version.
        """
        if state.get("version") != STATE_VERSION:
            raise CheckpointError(
                f"loader state of version {state.get('version')!r}", allowed=str(STATE_VERSION)
            )
        wrong = [
            f"{key} was {state.get(key)!r} and is {value!r}"
            for key, value in self._identity().items()
            if state.get(key) != value
        ]
        if wrong:
            raise CheckpointError(
                f"the checkpoint belongs to another data set or batching: {'; '.join(wrong)}",
                fix="resume with the data, split, batch size and seed of the original run",
            )
        epoch, step = state.get("epoch"), state.get("step")
        if not isinstance(epoch, int) or not isinstance(step, int) or not 0 <= step <= len(self):
            raise CheckpointError(f"loader state with epoch {epoch!r}, step {step!r}")
        self._move(epoch, step)

    def explain(self) -> dict[str, Any]:
        """Return a summary of the loader: samples, batches, order."""
        order = self.order
        last = order.num_samples - (len(self) - 1) * order.batch_size
        return {
            "samples": order.num_samples,
            "batches": len(self),
            "global_batch": order.batch_size,
            "local_batch": order.batch_size // self.world_size,
            "last_global_batch": min(last, order.batch_size),
            "order": order.words,
            "last_batch": "dropped when not full" if order.drop_last else "kept when not full",
        }

    def stats(self) -> dict[str, Any]:
        """Return counters: batches, samples, bytes read, seconds waited."""
        return {
            "batches": self._batches,
            "samples": self._samples,
            "bytes_read": self.source.bytes_read,
            "largest_batch_bytes": self._batch_bytes,
            "seconds_waited": self._waited,
        }


def tensors(arrays: Mapping[str, np.ndarray], num_valid: int | None = None) -> Batch:
    """Return arrays as a batch of tensors, which share memory with the arrays if possible."""
    batch = {key: torch.from_numpy(_native(value)) for key, value in arrays.items()}
    if num_valid is not None:
        batch["num_valid"] = torch.tensor(num_valid)
    return batch


def pinned_empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Return an array in page-locked memory, which allows asynchronous copies to a GPU.

    PyTorch's host allocator reuses a block as soon as its copy to the GPU is done, so a small pool
    of blocks is recycled.
    """
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    block = torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)
    return block.numpy().view(dtype).reshape(shape)


def _native(array: np.ndarray) -> np.ndarray:
    """Return an array as torch requires it: native byte order, contiguous, writable."""
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    return np.require(array, requirements=["C", "W"])


def digest(description: Mapping[str, Any]) -> str:
    """Return a 64-bit hash of JSON data as hexadecimal text."""
    text = json.dumps(description, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
