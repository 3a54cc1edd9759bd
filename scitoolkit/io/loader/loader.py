"""The loader: cursor, read-ahead and this rank's share, over any source and order.

Read-ahead is by a thread, not by processes: HDF5 and decompression release the interpreter lock,
and tensors need not cross shared memory. The cursor counts the batches handed to the consumer;
what the thread has fetched beyond that is simply read again after a resume.
"""

from __future__ import annotations

import hashlib
import json
import queue
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import CheckpointError, ConfigError, DataError, ScitoolkitError
from scitoolkit.io.loader.order import EpochOrder, rank_share
from scitoolkit.io.loader.source import Source

STATE_VERSION = 1
_MUST_MATCH = ("num_samples", "batch_size", "seed", "shuffle", "drop_last", "fingerprint")
_POLL_SECONDS = 0.05


class FieldLoader:
    """Batches of a source, resumable at any step and at any world size that divides the batch.

    Iterating gives the rest of the current epoch; iterating again after its end starts the same
    epoch anew, so call `set_epoch` for another order.

    Args:
        source: the samples.
        batch_size: samples in a GLOBAL batch, over all ranks.
        seed: seed of the shuffling.
        shuffle: permute the samples anew every epoch.
        drop_last: leave out a last batch that is not full.
        rank: this process.
        world_size: number of processes; must divide `batch_size`.
        prefetch: batches read ahead by a thread; 0 reads in the caller.

    Raises:
        ConfigError: no samples, or the world size does not divide the batch.

    Example:
        >>> from scitoolkit.io.loader.source import ArraySource
        >>> loader = FieldLoader(ArraySource({"x": np.arange(5.0)}), batch_size=2, shuffle=False)
        >>> [batch["x"].tolist() for batch in loader]
        [[0.0, 1.0], [2.0, 3.0], [4.0]]
        >>> loader.state_dict()["step"]
        3
    """

    def __init__(
        self,
        source: Source,
        batch_size: int,
        *,
        seed: int = 0,
        shuffle: bool = True,
        drop_last: bool = False,
        rank: int = 0,
        world_size: int = 1,
        prefetch: int = 2,
    ) -> None:
        if world_size < 1 or not 0 <= rank < world_size:
            raise ConfigError(f"rank {rank} of world size {world_size}")
        if batch_size % world_size:
            below = batch_size - batch_size % world_size
            raise ConfigError(
                f"the global batch_size {batch_size} cannot be divided among {world_size} ranks",
                allowed=f"multiples of {world_size}",
                fix=f"batch_size={below or world_size}",
            )
        if prefetch < 0:
            raise ConfigError(f"prefetch {prefetch} is negative", allowed="0 or more")
        self.source = source
        self.order = EpochOrder(len(source), batch_size, seed, shuffle, drop_last)
        self.rank, self.world_size, self.prefetch = rank, world_size, prefetch
        self._fingerprint = _digest(source.describe())
        self._epoch = self._step = 0
        self._finished = False
        self._iteration = 0
        self._batches = self._samples = 0
        self._waited = 0.0
        self._batch_bytes = 0

    def __len__(self) -> int:
        """Return the number of global batches in a whole epoch."""
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
        # The number is taken here, not at the first `next`, so that of two iterators made one
        # after the other the later one wins whichever is advanced first.
        return self._iterate(self._iteration)

    def _iterate(self, iteration: int) -> Iterator[Batch]:
        batches = self._read_ahead() if self.prefetch else self._read_all()
        try:
            while True:
                if iteration != self._iteration:
                    raise RuntimeError("the loader was moved, or iterated anew, meanwhile")
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

    def _read_all(self) -> Iterator[Batch]:
        permutation = self.order.permutation(self._epoch)
        epoch = self._epoch
        for step in range(self._step, len(self)):
            indices, num_valid = rank_share(
                self.order.cut(permutation, step), self.rank, self.world_size
            )
            yield self._read(indices, num_valid, f"epoch {epoch}, batch {step}")

    def _read(self, indices: np.ndarray, num_valid: int | None, where: str) -> Batch:
        try:
            arrays = self.source.read(indices)
        except ScitoolkitError:
            raise
        except Exception as error:
            samples = ", ".join(map(str, indices[:5])) + (", ..." if len(indices) > 5 else "")
            raise DataError(
                f"samples {samples} cannot be read ({type(error).__name__}: {error})", where=where
            ) from error
        batch = {key: torch.from_numpy(_native(value)) for key, value in arrays.items()}
        if num_valid is not None:
            batch["num_valid"] = torch.tensor(num_valid)
        return batch

    def _read_ahead(self) -> Iterator[Batch]:
        ready: queue.Queue[tuple[Batch | None, BaseException | None]]
        ready = queue.Queue(maxsize=self.prefetch)
        stop = threading.Event()
        reader = threading.Thread(
            target=_fill, args=(self._read_all(), ready, stop), name="loader", daemon=True
        )
        reader.start()
        try:
            while True:
                batch, error = ready.get()
                if error is not None:
                    raise error
                if batch is None:
                    return
                yield batch
        finally:
            # Also reached when the consumer breaks off or the iterator is collected.
            stop.set()
            reader.join()

    def state_dict(self) -> dict[str, Any]:
        """Return the cursor (JSON types, under 1 kB): the batches handed out, not those fetched."""
        return {
            "version": STATE_VERSION,
            "epoch": self._epoch,
            "step": self._step,
            **self._identity(),
        }

    def _identity(self) -> dict[str, Any]:
        order = self.order
        return {
            "num_samples": order.num_samples,
            "batch_size": order.batch_size,
            "seed": order.seed,
            "shuffle": order.shuffle,
            "drop_last": order.drop_last,
            "fingerprint": self._fingerprint,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Move to a saved cursor, at any world size that divides the global batch.

        Raises:
            CheckpointError: the state is of another set, batch size, seed or version.
        """
        if state.get("version") != STATE_VERSION:
            raise CheckpointError(
                f"loader state of version {state.get('version')!r}", allowed=str(STATE_VERSION)
            )
        mine = self._identity()
        wrong = [
            f"{key} was {state.get(key)!r} and is {mine[key]!r}"
            for key in _MUST_MATCH
            if state.get(key) != mine[key]
        ]
        if wrong:
            raise CheckpointError(
                f"the checkpoint belongs to another data set or batching: {'; '.join(wrong)}",
                fix="resume with the data, split, batch size and seed that the run began with",
            )
        epoch, step = state.get("epoch"), state.get("step")
        if not isinstance(epoch, int) or not isinstance(step, int) or not 0 <= step <= len(self):
            raise CheckpointError(f"loader state with epoch {epoch!r}, step {step!r}")
        self._move(epoch, step)

    def explain(self) -> dict[str, Any]:
        """Return what is going to happen: samples, batches, predicted reads, memory."""
        order = self.order
        last = order.num_samples - (len(self) - 1) * order.batch_size
        local = order.batch_size // self.world_size
        return {
            "samples": order.num_samples,
            "batches": len(self),
            "global_batch": order.batch_size,
            "local_batch": local,
            "last_global_batch": min(last, order.batch_size),
            "sample_reads": sum(self._local_sizes()),
            # Ready in the queue, one in the reader's hand, one with the consumer.
            "batches_in_memory": self.prefetch + 2 if self.prefetch else 1,
            "order": "shuffled every epoch" if order.shuffle else "as stored",
            "last_batch": "dropped when not full" if order.drop_last else "kept when not full",
        }

    def _local_sizes(self) -> Iterator[int]:
        positions = np.arange(self.order.num_samples)
        for step in range(len(self)):
            batch = self.order.cut(positions, step)
            yield len(rank_share(batch, self.rank, self.world_size)[0])

    def stats(self) -> dict[str, Any]:
        """Return what has happened: batches, samples, bytes read, seconds waited."""
        return {
            "batches": self._batches,
            "samples": self._samples,
            "bytes_read": self.source.bytes_read,
            "largest_batch_bytes": self._batch_bytes,
            "seconds_waited": self._waited,
        }


def _fill(batches: Iterator[Batch], ready: queue.Queue[Any], stop: threading.Event) -> None:
    """Put batches, then (None, None), or an error, into `ready` until told to stop."""

    def put(item: tuple[Batch | None, BaseException | None]) -> bool:
        while not stop.is_set():
            try:
                ready.put(item, timeout=_POLL_SECONDS)
                return True
            except queue.Full:
                continue
        return False

    try:
        for batch in batches:
            if not put((batch, None)):
                return
        put((None, None))
    except BaseException as error:  # handed to the consumer, who raises it
        put((None, error))


def _native(array: np.ndarray) -> np.ndarray:
    """Return an array that torch takes: native byte order, contiguous, writable."""
    array = array.astype(array.dtype.newbyteorder("="), copy=False)
    return np.require(array, requirements=["C", "W"])


def _digest(description: Mapping[str, Any]) -> str:
    text = json.dumps(description, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
