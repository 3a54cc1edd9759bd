"""Planned loader: exactly shuffled batches from files with a minimal number of reads.

Every rank computes the plan of an epoch for all ranks (see `plan`), executes its part and caches
the samples that the plan retains. Threads read ahead; batches are assembled in the consumer's
thread.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch

from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.io.loader.agreement import process_of, require_agreement
from scitoolkit.io.loader.cursor import CursorLoader, pinned_empty, tensors
from scitoolkit.io.loader.explain import explained
from scitoolkit.io.loader.fallbacks import SampleFallbacks
from scitoolkit.io.loader.fetch import ReadAhead
from scitoolkit.io.loader.file_source import FileSource
from scitoolkit.io.loader.order import EpochOrder, SampleBlocks
from scitoolkit.io.loader.plan import EpochPlan, LoaderStep, Planner
from scitoolkit.io.loader.plan_samples import SamplePlanner
from scitoolkit.io.loader.plan_units import UnitPlanner
from scitoolkit.io.loader.rows import UNWRITTEN_FIX
from scitoolkit.io.loader.sample_cache import SampleCache
from scitoolkit.io.loader.shared_reads import shared_reads
from scitoolkit.io.loader.sizes import nbytes_of

SHUFFLES = ("exact", "block", False)


class PlannedLoader(CursorLoader):
    """Loader of batches from files in exactly shuffled order, with as few reads as possible.

    It replaces a `DataLoader`. Global batches depend only on seed, epoch, data set and batch size,
    not on buffer, threads or number of ranks.

    Args:
        source: the samples, from `open_source`.
        batch_size: samples per GLOBAL batch, over all ranks.
        seed: of the shuffling.
        buffer: memory for cached samples on EACH rank, bytes or "4GiB".
        shuffle: "exact" permutes all samples every epoch. "block" permutes whole chunks, and the
            samples within as many chunks as fit into the buffer: it reads the file once per epoch,
            but samples of a chunk are more often in the same batch (see `explain`). False is the
            stored order.
        drop_last: whether to drop an incomplete last batch.
        on_error: "raise", or "skip" to replace an unreadable sample by another one, the same on
            every rank and in every run.
        rank: this process; from torch.distributed by default.
        world_size: number of processes; must divide `batch_size`.
        threads: number of threads that read and decode.
        prefetch: memory for read-ahead, bytes or "256MiB"; steps in it share their rows.
        pin_memory: assemble batches in page-locked memory, so that
            `tensor.to("cuda", non_blocking=True)` is asynchronous; by default if there is a GPU.

    Raises:
        ConfigError: invalid settings, or fewer samples than a batch with `drop_last`.
        DataError: rows were never written and `on_error` is "raise".

    Example:
        >>> import h5py, numpy as np, tempfile
        >>> from pathlib import Path
        >>> from scitoolkit.io.loader import open_source
        >>> path = Path(tempfile.mkdtemp()) / "run.h5"
        >>> with h5py.File(path, "w") as file:
        ...     file["u"] = np.arange(6.0)
        >>> source = open_source(path, {"x": "u"})
        >>> loader = PlannedLoader(source, batch_size=3, seed=1, buffer="1MiB")
        >>> sorted(value for batch in loader for value in batch["x"].tolist())
        [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
        >>> loader.stats()["samples"]
        6
    """

    def __init__(
        self,
        source: FileSource,
        batch_size: int,
        seed: int = 0,
        buffer: int | str = "1GiB",
        shuffle: str | bool = "exact",
        *,
        drop_last: bool = False,
        on_error: str = "raise",
        rank: int | None = None,
        world_size: int | None = None,
        threads: int = 8,
        prefetch: int | str = "256MiB",
        pin_memory: bool | None = None,
    ) -> None:
        if shuffle not in SHUFFLES:
            raise ConfigError(f"shuffle {shuffle!r}", allowed="'exact', 'block', False")
        if on_error not in ("raise", "skip"):
            raise ConfigError(f"on_error {on_error!r}", allowed="'raise', 'skip'")
        if threads < 1:
            raise ConfigError(f"threads {threads}", allowed="1 or more")
        self.buffer: int = nbytes_of(buffer, "buffer")
        self.prefetch: int = nbytes_of(prefetch, "prefetch")
        rank, world_size = process_of(rank, world_size)
        self.files: FileSource = source
        self.threads: int = threads
        self.on_error = on_error
        if on_error == "raise":
            _require_written(source)
        units = source.plan_units()
        capacity = self._capacity()
        blocks = SampleBlocks(source.blocks(), max(1, capacity)) if shuffle == "block" else None
        order = EpochOrder(len(source), batch_size, seed, bool(shuffle), drop_last, blocks)
        super().__init__(source, order, rank, world_size)
        self.units: np.ndarray | None = units
        self.capacity: int = capacity
        self.planner: Planner = self.new_planner()
        self.gap_nbytes: float = source.gap_nbytes()
        self.replacements: SampleFallbacks = SampleFallbacks(source, seed, on_error)
        pinned = torch.cuda.is_available() if pin_memory is None else pin_memory
        self.holdings: SampleCache = SampleCache(
            source, capacity, pinned_empty if pinned else np.empty
        )
        self._plan: EpochPlan | None = None
        self._next_plan: Future[EpochPlan] | None = None
        self._owner = os.getpid()
        self._position: tuple[int, int, int] | None = None
        self._peak = 0

    def new_planner(self) -> Planner:
        """Return a planner with empty caches."""
        if self.units is None:
            return SamplePlanner(self.order, self.capacity, self.world_size)
        return UnitPlanner(self.order, self.capacity, self.units, self.world_size)

    def _capacity(self) -> int:
        """Return the capacity of one rank's buffer in samples; all samples if all rows fit."""
        source = self.files
        rows = sum(r.num_rows * r.row_nbytes for r in source.rows.values())
        if rows <= self.buffer:
            return len(source)
        return min(len(source), self.buffer // source.sample_nbytes)

    def _batches_from(self, epoch: int, step: int) -> Iterator[Batch]:
        plan = self._planned(epoch, step)
        if self.world_size > 1:
            mine = {"data": self._fingerprint, "epoch": epoch, "step": step, "plan": plan.digest()}
            require_agreement(mine, self.world_size)
        rows = self.holdings.ahead().needed(plan, self.rank, step)
        work = shared_reads(self.files, rows, self.gap_nbytes, self.prefetch)
        reader = ReadAhead(self.files, work, self.threads)
        self._position = None
        try:
            for number, doing in enumerate(plan.steps(self.rank, step), step):
                batch = self._carry_out(doing, reader, plan, number)
                self._position = self._place(epoch, number + 1)
                yield batch
                self._position = None
            self._position = self._place(epoch + 1, 0)
        finally:
            self._peak = max(self._peak, reader.peak)
            reader.close()

    def _place(self, epoch: int, step: int) -> tuple[int, int, int]:
        """Return the position to which the caches belong; without shuffling, epochs are equal."""
        if step == len(self):
            epoch, step = epoch + 1, 0
        return (epoch if self.order.shuffle else 0, step, os.getpid())

    def _planned(self, epoch: int, step: int) -> EpochPlan:
        """Return the plan from a position on; caches are cleared unless they belong to it."""
        upcoming, self._next_plan = self._next_plan, None
        here = self._place(epoch, step)
        if self._position == here and step and self._plan is not None:
            self._next_plan = upcoming
            return self._plan
        if self._position == here and upcoming is not None:
            self._plan = upcoming.result()
        else:
            if upcoming is not None and self._owner == os.getpid():
                upcoming.exception()  # wait until it no longer uses the planner
            self._owner = os.getpid()
            self.planner.reset()
            self.holdings.clear()
            self._plan = self.planner.plan(epoch, step)
        # The next epoch is planned in another thread during this one.
        pool = ThreadPoolExecutor(1, thread_name_prefix="planner")
        self._next_plan = pool.submit(self.planner.plan, epoch + 1)
        pool.shutdown(wait=False)
        return self._plan

    def _carry_out(
        self, doing: LoaderStep, reader: ReadAhead, plan: EpochPlan, number: int
    ) -> Batch:
        samples, num_valid = doing.samples, None
        if not len(samples):
            # Every rank participates in every step, if necessary with a filler that does not count.
            samples, num_valid = plan.samples[number * self.order.batch_size :][:1], 0
        where = f"batch {number}"
        fetched = reader.next_step()
        values = self.holdings.take(samples, doing, fetched, self.replacements, where)
        reader.done()
        return tensors(self.files.assemble(values), num_valid)

    def explain(self) -> dict[str, Any]:
        """Return predictions by planning two epochs; see `explain.explained` for the keys.

        Requests and bytes are those of this rank, in the first epoch and in a later one.
        """
        return {**super().explain(), **explained(self)}

    def stats(self) -> dict[str, Any]:
        """Return counters: batches, samples, requests, bytes, seconds waited, memory."""
        requests, nbytes = self.files.counters()
        useful = self._samples * self.files.sample_nbytes
        return {
            **super().stats(),
            "requests": requests,
            "amplification": nbytes / useful if useful else 0.0,
            "buffer_bytes": self.holdings.nbytes,
            "largest_prefetch_bytes": self._peak,
            "samples_replaced": self.replacements.replaced[:20],
        }


def _require_written(source: FileSource) -> None:
    """Raise DataError if rows of samples were never written; HDF5 would return fill values."""
    for name, runs in source.never_written().items():
        rows = source.rows_of(name, np.arange(len(source))).ravel()
        runs = [(a, b) for a, b in runs if ((rows >= a) & (rows < b)).any()]
        if runs:
            text = ", ".join(f"{a} to {b - 1}" for a, b in runs[:5])
            raise DataError(
                f"rows {text}{', ...' if len(runs) > 5 else ''} were never written",
                where=source.rows[name].reader(0).layout.where,
                fix=UNWRITTEN_FIX + '; or on_error="skip"',
            )
