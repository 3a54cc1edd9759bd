"""Loader of batches from any source, with read-ahead in a thread.

A thread is used instead of processes, because HDF5 and decompression release the GIL and tensors
need not be copied between processes.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import ConfigError, DataError, ScitoolkitError
from scitoolkit.io.loader.cursor import CursorLoader, tensors
from scitoolkit.io.loader.order import EpochOrder, rank_share
from scitoolkit.io.loader.source import Source

_POLL_SECONDS = 0.05


class BatchLoader(CursorLoader):
    """Loader of batches, resumable at any step and any world size that divides the batch size.

    Iteration and resuming are described in `CursorLoader`.

    Args:
        source: the samples.
        batch_size: samples per GLOBAL batch, over all ranks.
        seed: of the shuffling.
        shuffle: whether to permute the samples in every epoch.
        drop_last: whether to drop an incomplete last batch.
        rank: this process.
        world_size: number of processes; must divide `batch_size`.
        prefetch: number of batches read ahead by a thread; 0 reads in the caller.

    Raises:
        ConfigError: no samples, or the world size does not divide the batch size.

    Example:
        >>> from scitoolkit.io.loader.source import ArraySource
        >>> loader = BatchLoader(ArraySource({"x": np.arange(5.0)}), batch_size=2, shuffle=False)
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
        if prefetch < 0:
            raise ConfigError(f"prefetch {prefetch} is negative", allowed="0 or more")
        order = EpochOrder(len(source), batch_size, seed, shuffle, drop_last)
        super().__init__(source, order, rank, world_size)
        self.prefetch = prefetch

    def _batches_from(self, epoch: int, step: int) -> Iterator[Batch]:
        return self._read_ahead() if self.prefetch else self._read_all()

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
        return tensors(arrays, num_valid)

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
            # Also reached if the consumer stops early or the iterator is garbage-collected.
            stop.set()
            reader.join()

    def explain(self) -> dict[str, Any]:
        """Return a summary of the loader: samples, batches, predicted reads, memory."""
        return {
            **super().explain(),
            "sample_reads": sum(self._local_sizes()),
            # Those in the queue, one being read, one used by the consumer.
            "batches_in_memory": self.prefetch + 2 if self.prefetch else 1,
        }

    def _local_sizes(self) -> Iterator[int]:
        positions = np.arange(self.order.num_samples)
        for step in range(len(self)):
            batch = self.order.cut(positions, step)
            yield len(rank_share(batch, self.rank, self.world_size)[0])


def _fill(batches: Iterator[Batch], ready: queue.Queue[Any], stop: threading.Event) -> None:
    """Put batches, then (None, None) or an error, into `ready` until `stop` is set."""

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
    except BaseException as error:  # raised by the consumer
        put((None, error))
