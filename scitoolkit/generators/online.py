"""Stream of samples made in the background, in order of their numbers.

A sample is a function of (seed, number, parameters), independent of the workers' timing. A failed
sample is logged and replaced by another draw, which the journal records, so that a resumed run
repeats the replacement. The sample of a worker that died, or has not answered in time, is repeated;
a sample that ends two workers counts as failed.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Mapping
from logging import Logger
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scitoolkit.core.draw import DrawConfig
from scitoolkit.core.errors import DataError, NumericalError
from scitoolkit.core.log import get_logger
from scitoolkit.core.resume import identity
from scitoolkit.core.seeds import derive_seed
from scitoolkit.core.worker_pool import DIED, Ended, Limits, WorkerProcesses
from scitoolkit.generators.base import Sample
from scitoolkit.generators.executors import WorkerPool
from scitoolkit.generators.journal import Journal, Made
from scitoolkit.generators.stream_task import Answer, MakeInWorker, make
from scitoolkit.generators.workers import Order, finished, make_samples

if TYPE_CHECKING:
    from scitoolkit.generators.base import Generator
    from scitoolkit.generators.extract import Extract

log: Logger = get_logger(__name__)
MOST_ATTEMPTS = 5
DEATHS = 2


class Draws:
    """Parameters and seeds of the samples of a job and of their replacements.

    Args:
        draw: with the total number of samples of the job.
        seed: of the job.
    """

    def __init__(self, draw: DrawConfig, seed: int) -> None:
        self._draw, self._seed = draw, seed
        self._values = draw.draw(seed)

    def order(
        self, number: int, attempt: int = 0, parameters: Mapping[str, float] | None = None
    ) -> Order:
        """Return the order of a sample; an independent draw if `attempt` > 0."""
        if not attempt:
            values = self._values[number] if parameters is None else dict(parameters)
            return Order(number, values, derive_seed(self._seed, number))
        rng = np.random.default_rng([self._seed, number, attempt])
        values = self._draw.values(rng.random(len(self._draw.parameters)).tolist())
        return Order(number, values, derive_seed(self._seed, number, attempt))


class SampleStream:
    """Samples of a generator by number, see `io.loader.streamed.SimulationStream`.

    Args:
        generator: with the values of the parameters that are not drawn.
        draws: parameters and seeds.
        extract: the arrays of a sample.
        offset: number of sample 0 in `draws`.
        journal: file that records orders and samples, or None.
        workers: number of processes; 0 makes each sample in this process when it is taken.
        ahead: number of samples, finished or in progress, that memory is allocated for.
        timeout: seconds without an answer after which a worker is replaced.

    Raises:
        DataError: the journal cannot be written.
    """

    def __init__(
        self,
        generator: Generator,
        draws: Draws,
        extract: Extract,
        *,
        offset: int = 0,
        journal: Path | None = None,
        workers: int = 1,
        ahead: int = 2,
        timeout: float = 3600.0,
    ) -> None:
        self._generator, self._draws, self._extract = generator, draws, extract
        self._offset, self._limits = offset, Limits(timeout)
        self._journal = Journal(journal)
        self._count = workers
        self._workers: WorkerProcesses | None = None
        self._free = [np.empty(extract.size, np.float32) for _ in range(ahead if workers else 1)]
        self.nbytes: int = sum(block.nbytes for block in self._free)
        self._waiting: deque[Order] = deque()
        self._asked: dict[int, dict[str, float]] = {}
        self._attempts: dict[int, int] = {}
        self._deaths: dict[int, int] = {}
        self._under_way: dict[int, np.ndarray] = {}
        self._finished: dict[int, np.ndarray] = {}
        self._made = self._replaced_workers = self._replaced_samples = 0
        self._seconds = 0.0

    def order(self, number: int, parameters: Mapping[str, float] | None = None) -> None:
        """Order a sample, with the drawn parameters unless `parameters` are given."""
        number += self._offset
        if parameters is not None:
            self._journal.choose(number, parameters)
        asked = self._draws.order(number, 0, self._journal.asked(number)).parameters
        record = self._journal.made(number, asked)
        self._asked[number], self._attempts[number] = asked, record.attempt if record else 0
        self._waiting.append(self._order(number))

    def _order(self, number: int) -> Order:
        return self._draws.order(number, self._attempts[number], self._asked[number])

    def forget(self) -> None:
        """Drop all orders and their finished samples."""
        self._waiting.clear()
        self._free += self._finished.values()
        self._finished.clear()
        self._asked.clear()

    def take(self, number: int, out: Mapping[str, np.ndarray]) -> None:
        """Wait for an ordered sample and write it into arrays.

        Raises:
            NumericalError: the sample and all its replacements failed.
            BackendError: workers cannot start.
            DataError: the disk is full.
        """
        number += self._offset
        if not self._count:
            self._make_here(number)
        while number not in self._finished:
            self.poll(None)
        block = self._finished.pop(number)
        self._extract.unpack(block, out)
        self._free.append(block)
        self.poll()

    def poll(self, timeout: float | None = 0.0) -> None:
        """Receive finished samples and give the workers the next orders.

        Args:
            timeout: seconds to wait for a sample if workers make some; None for any time.
        """
        self._give_orders()
        if self._workers is not None:
            for ended in self._workers.wait(timeout if self._under_way else 0.0):
                self._receive(ended)
            self._give_orders()

    def _give_orders(self) -> None:
        if not self._count or not self._waiting:
            return
        if self._workers is None:
            task = MakeInWorker(self._generator.model_dump(mode="json"), self._extract)
            self._workers = WorkerProcesses(pickle.dumps(task), self._count, limits=self._limits)
        while self._waiting and self._free and self._workers.free:
            order = self._waiting.popleft()
            self._under_way[order.index] = self._free.pop()
            self._workers.submit(order)

    def extracted(self, path: Path) -> dict[str, np.ndarray]:
        """Return the arrays of a sample in a file, in the form of the stream."""
        frames, origin = self._generator.read(path)
        return self._extract.arrays(
            self._generator.with_parameters(origin.parameters), Sample(frames, {})
        )

    def describe(self) -> dict[str, Any]:
        """Return the settings that the samples depend on (JSON types)."""
        return {"generator": identity(self._generator), "offset": self._offset}

    def stats(self) -> dict[str, Any]:
        """Return counts of samples and replacements, CPU seconds, and memory in bytes."""
        return {
            "simulations_made": self._made,
            "generator_cpu_seconds": self._seconds,
            "workers_replaced": self._replaced_workers,
            "simulations_replaced": self._replaced_samples,
            "ahead_bytes": self.nbytes,
        }

    def close(self) -> None:
        """End the workers."""
        if self._workers is not None:
            self._workers.close()
            self._workers = None
        self._free += [*self._under_way.values(), *self._finished.values()]
        self._under_way.clear()
        self.forget()

    def _make_here(self, number: int) -> None:
        while number not in self._finished:
            order = next(o for o in self._waiting if o.index == number)
            self._waiting.remove(order)
            self._under_way[number] = self._free.pop()
            self._accept(order, make(self._generator, self._extract, order))

    def _receive(self, ended: Ended) -> None:
        order: Order = ended.task
        if not ended.failure:
            self._accept(order, ended.answer)
            return
        count = self._deaths[order.index] = self._deaths.get(order.index, 0) + 1
        self._replaced_workers += 1
        cause = ended.error if ended.failure == DIED else f"it made a sample for {ended.error}"
        log.warning(
            "worker %d is replaced (%s) while it made sample %d %s",
            ended.worker,
            cause,
            order.index,
            order.parameters,
        )
        if count < DEATHS:
            self._again(order)
        else:
            self._accept(order, Answer(error=f"it ended {count} workers ({cause})"))

    def _accept(self, order: Order, answer: Answer) -> None:
        """Store a finished sample, or order its replacement."""
        number = order.index
        if number not in self._asked or order != self._order(number):
            self._free.append(self._under_way.pop(number))  # forgotten meanwhile
            return
        if answer.fatal:
            raise DataError(
                answer.error,
                where=f"sample {number} {order.parameters}",
                fix="correct it, then --resume",
            )
        for note in answer.missed:
            log.warning("sample %d %s: %s", number, order.parameters, note)
        if answer.values is not None:
            self._made += 1
            self._seconds += answer.seconds
            self._journal.finish(
                Made(
                    number,
                    self._asked[number],
                    order.parameters,
                    order.seed,
                    self._attempts[number],
                    answer.checksum,
                )
            )
            self._finished[number] = self._under_way.pop(number)
            self._finished[number][:] = answer.values
            return
        self._attempts[number] += 1
        self._replaced_samples += 1
        if self._attempts[number] > MOST_ATTEMPTS:
            raise given_up(number, order.parameters, answer.error)
        log.warning(
            "sample %d %s failed and is replaced by another draw: %s",
            number,
            order.parameters,
            answer.error,
        )
        self._again(self._order(number))

    def _again(self, order: Order) -> None:
        self._free.append(self._under_way.pop(order.index))
        # Lowest number first: otherwise later samples could occupy all memory.
        self._waiting = deque(sorted([*self._waiting, order], key=lambda o: o.index))


def first_samples(
    generator: Generator,
    draws: Draws,
    count: int,
    folder: Path,
    processes: int,
    chosen: Mapping[int, int],
) -> list[Path]:
    """Make the missing ones of the first samples as files; return the files by number.

    Args:
        generator: with the values of the parameters that are not drawn.
        draws: parameters and seeds.
        count: number of samples.
        folder: of the files.
        processes: number of samples that are made in parallel.
        chosen: {number: candidate} of the samples whose candidate is not 0.

    Raises:
        NumericalError: a sample and all its replacements failed.
        DataError: the disk is full; finished samples are kept.
    """
    attempts = {n: chosen.get(n, 0) for n in range(count)}
    failures = dict.fromkeys(range(count), 0)
    done = {n: r for n, r in finished(folder).items() if n < count}
    while len(done) < count:
        orders = [draws.order(n, attempts[n]) for n in range(count) if n not in done]
        for record in make_samples(generator, orders, folder, WorkerPool(None, processes)):
            if record.fatal:
                raise DataError(
                    record.error,
                    where=f"{folder}: sample {record.index}",
                    fix="free space, then --resume: finished samples are kept",
                )
            for note in record.missed:
                log.warning("sample %d %s: %s", record.index, record.parameters, note)
            if not record.error:
                done[record.index] = record
                continue
            attempts[record.index] += 1
            failures[record.index] += 1
            if failures[record.index] > MOST_ATTEMPTS:
                raise given_up(record.index, record.parameters, record.error)
            log.warning(
                "sample %d %s failed and is replaced by another draw: %s",
                record.index,
                record.parameters,
                record.error,
            )
    return [folder / done[n].file for n in range(count)]


def given_up(number: int, parameters: Mapping[str, float], error: str) -> NumericalError:
    """Return the error of a sample whose replacements failed as well."""
    return NumericalError(
        f"sample {number} failed {MOST_ATTEMPTS + 1} times, the last with {dict(parameters)}: "
        f"{error}",
        where="generator",
        fix="narrower priors, or other settings of the generator",
    )
