"""The planned loader: exact shuffling, unchanged batches, and no byte read more often than needed.

Every rank plans the epoch for all ranks, by itself and alike (see `plan`), carries its own part
out, and keeps in memory what the plan says. Threads read ahead; batches are put together in the
consumer's thread.
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
from scitoolkit.io.loader.order import Blocks, EpochOrder
from scitoolkit.io.loader.plan import EpochPlan, Planner, Step
from scitoolkit.io.loader.plan_samples import SamplePlanner
from scitoolkit.io.loader.plan_units import UnitPlanner
from scitoolkit.io.loader.rows import UNWRITTEN_FIX
from scitoolkit.io.loader.sample_cache import SampleCache
from scitoolkit.io.loader.sizes import nbytes_of

SHUFFLES = ("exact", "block", False)


class PlannedLoader(CursorLoader):
    """Batches of files, in exactly shuffled order, with as few reads as the buffer allows.

    Stands where a `DataLoader` stands. The order, and so every global batch, depends on the seed,
    the epoch, the set and the batch size alone: not on buffer, threads or number of ranks.

    Args:
        source: the samples, by `open_source`.
        batch_size: samples in a GLOBAL batch, over all ranks.
        seed: seed of the shuffling.
        buffer: memory for samples kept from batch to batch on EACH rank, bytes or "4GiB".
        shuffle: "exact" permutes all samples every epoch; "block" permutes whole chunks, and
            samples within as many chunks as the buffer holds: one pass over the file an epoch,
            but the samples of a chunk meet in a batch more often (see `explain`); False keeps
            the stored order.
        drop_last: leave out a last batch that is not full.
        on_error: "raise", or "skip" to take another sample, the same on every rank and in
            every run, in place of one that cannot be read.
        rank: this process; None asks torch.distributed, if it runs.
        world_size: number of processes; must divide `batch_size`.
        threads: threads that read and decode.
        prefetch: memory for what is read ahead, bytes or "256MiB".
        pin_memory: put batches together in page-locked memory, so that
            `tensor.to("cuda", non_blocking=True)` returns at once; None does so if there is a GPU.

    Raises:
        ConfigError: settings that cannot be, or fewer samples than a batch with `drop_last`.
        DataError: rows that were never written, unless skipped.

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
        blocks = Blocks(source.blocks(), max(1, capacity)) if shuffle == "block" else None
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
        """Return a planner that knows of nothing held."""
        if self.units is None:
            return SamplePlanner(self.order, self.capacity, self.world_size)
        return UnitPlanner(self.order, self.capacity, self.units, self.world_size)

    def _capacity(self) -> int:
        """Return the samples that one rank's buffer holds; all where all rows fit in."""
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
        work = self.holdings.ahead().reads(plan, self.rank, step, self.gap_nbytes)
        reader = ReadAhead(self.files, work, self.threads, self.prefetch)
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
        """Return where the buffers are; without shuffling one epoch is like another."""
        if step == len(self):
            epoch, step = epoch + 1, 0
        return (epoch if self.order.shuffle else 0, step, os.getpid())

    def _planned(self, epoch: int, step: int) -> EpochPlan:
        """Return the plan from here on; what is in memory is of use only if it led here."""
        upcoming, self._next_plan = self._next_plan, None
        here = self._place(epoch, step)
        if self._position == here and step and self._plan is not None:
            self._next_plan = upcoming
            return self._plan
        if self._position == here and upcoming is not None:
            self._plan = upcoming.result()
        else:
            if upcoming is not None and self._owner == os.getpid():
                upcoming.exception()  # it has done with the planner
            self._owner = os.getpid()
            self.planner.reset()
            self.holdings.clear()
            self._plan = self.planner.plan(epoch, step)
        # While this epoch runs, another thread makes the plan of the one after it.
        pool = ThreadPoolExecutor(1, thread_name_prefix="planner")
        self._next_plan = pool.submit(self.planner.plan, epoch + 1)
        pool.shutdown(wait=False)
        return self._plan

    def _carry_out(self, doing: Step, reader: ReadAhead, plan: EpochPlan, number: int) -> Batch:
        samples, num_valid = doing.samples, None
        if not len(samples):
            # Every rank takes part in every step: this one with a filler that counts for nothing.
            samples, num_valid = plan.samples[number * self.order.batch_size :][:1], 0
        where = f"batch {number}"
        fetched = reader.next_step()
        values = self.holdings.take(samples, doing, fetched, self.replacements, where)
        reader.done()
        return tensors(self.files.assemble(values), num_valid)

    def explain(self) -> dict[str, Any]:
        """Return what is going to happen, `explain.explained` for the keys. Plans two epochs.

        The reads and bytes are this rank's, of the first epoch and of one after it.
        """
        return {**super().explain(), **explained(self)}

    def stats(self) -> dict[str, Any]:
        """Return what has happened: batches, samples, requests, bytes, seconds waited, memory."""
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
    """Raise where rows that samples need were never written: HDF5 would give a fill value."""
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
