"""Making of samples in processes, with one file and one record per sample, written atomically.

A failed sample, or the death of its process, does not affect other samples. Only a full disk, which
would also affect the next sample, stops everything.
"""

from __future__ import annotations

import json
import pickle
import time
from collections import abc, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scitoolkit.core.errors import EXIT_DATA, ScitoolkitError
from scitoolkit.core.files import write_atomic
from scitoolkit.core.log import get_logger
from scitoolkit.core.worker_pool import WorkerProcesses
from scitoolkit.core.worker_process import Send
from scitoolkit.generators.base import Generator, generators
from scitoolkit.generators.executors import WorkerPool

if TYPE_CHECKING:
    from concurrent.futures import Executor

_logger = get_logger(__name__)
RECORDS = ".records"


@dataclass(frozen=True)
class Order:
    """Order of a sample: its number, parameters and seed."""

    index: int
    parameters: dict[str, float]
    seed: int


@dataclass(frozen=True)
class Record:
    """Result of an order.

    Attributes:
        index: number of the sample.
        parameters: of the sample.
        seed: of the sample.
        file: name of the sample's file in the campaign's folder, "" if it failed.
        size: bytes of the file.
        seconds: CPU time of the process.
        invariants: drifts of the invariants.
        notes, missed, accuracy: see `Sample`; the accuracy is empty if it is not measured.
        error: why the sample failed, or "".
        fatal: whether the next sample would fail too.
    """

    index: int
    parameters: dict[str, float]
    seed: int
    file: str = ""
    size: int = 0
    seconds: float = 0.0
    invariants: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    missed: list[str] = field(default_factory=list)
    accuracy: dict[str, float | str] = field(default_factory=dict)
    error: str = ""
    fatal: bool = False


def make_sample(settings: Mapping[str, Any], order: Order, folder: Path) -> Record:
    """Make one sample, and write its file and its record."""
    generator = generators.get(settings["name"]).model_validate(settings)
    begin = time.process_time()
    told = asdict(order)
    try:
        sample = generator.sample(order.parameters, order.seed)
        name = f"sample_{order.index:05d}{generator.suffix}"
        made = generator.with_parameters(order.parameters)
        origin = made.origin(sample, order.seed, order.parameters)
        generator.write(sample, origin, folder / name)
        record = Record(
            **told,
            file=name,
            size=(folder / name).stat().st_size,
            seconds=time.process_time() - begin,
            invariants=dict(sample.invariants),
            notes=list(sample.notes),
            missed=list(sample.missed),
            accuracy=dict(origin.accuracy),
        )
        write_atomic(_record_path(folder, order.index), json.dumps(asdict(record)) + "\n")
    except ScitoolkitError as error:
        return Record(**told, error=str(error), fatal=error.exit_code == EXIT_DATA)
    except OSError as error:
        return Record(**told, error=f"{folder}: {error.strerror or error}", fatal=True)
    except MemoryError:
        return Record(**told, error="out of memory")
    return record


def finished(folder: Path) -> dict[int, Record]:
    """Return the records in a campaign's folder whose files are complete, by number."""
    outcomes = {}
    for path in sorted((folder / RECORDS).glob("*.json")):
        try:
            record = Record(**json.loads(path.read_text(encoding="utf-8")))
            file = folder / record.file
        except (OSError, ValueError, TypeError, RecursionError) as error:
            _logger.warning("%s is damaged (%s): its sample is made again", path, error)
            continue
        if file.is_file() and file.stat().st_size == record.size:
            outcomes[record.index] = record
    return outcomes


def make_samples(
    generator: Generator, orders: Sequence[Order], folder: Path, pool: WorkerPool
) -> Iterator[Record]:
    """Yield a record for each order as it is finished.

    Args:
        generator: with the values of the parameters that the orders do not set.
        orders: of the samples.
        folder: of the campaign.
        pool: of workers; a single worker without an executor is this process.
    """
    (folder / RECORDS).mkdir(parents=True, exist_ok=True)
    settings = generator.model_dump(mode="json")
    if pool.executor is not None:
        yield from _in_pool(settings, orders, folder, pool.executor, pool.workers)
    elif pool.workers == 1:
        for order in orders:
            yield make_sample(settings, order, folder)
    else:
        yield from _in_processes(settings, orders, folder, pool.workers)


def _in_pool(
    settings: dict[str, Any],
    orders: Sequence[Order],
    folder: Path,
    executor: Executor,
    workers: int,
) -> Iterator[Record]:
    """Yield records of samples made by an executor; a lost worker only fails its sample."""
    from concurrent.futures import FIRST_COMPLETED, wait

    waiting, running = list(reversed(orders)), dict[Any, Order]()
    try:
        while waiting or running:
            while waiting and len(running) < workers:
                order = waiting.pop()
                running[executor.submit(make_sample, settings, order, folder.resolve())] = order
            for done in wait(running, return_when=FIRST_COMPLETED).done:
                order, failure = running.pop(done), done.exception()
                if failure is None:
                    yield done.result()
                else:
                    text = f"its worker died ({type(failure).__name__}: {failure})"
                    yield Record(**asdict(order), error=text)
    finally:
        for future in running:
            future.cancel()


def _in_processes(
    settings: dict[str, Any], orders: Sequence[Order], folder: Path, processes: int
) -> Iterator[Record]:
    """Yield records of samples made in processes; repeat singly those whose process died."""
    make = pickle.dumps(partial(_make_in_process, settings, folder))
    workers = WorkerProcesses(make, min(processes, len(orders)))
    try:
        died = yield from _made(workers, orders, processes)
        # Memory that several samples needed together may have been the cause: once more, alone.
        for order in (yield from _made(workers, died, 1)):
            yield Record(**asdict(order), error="its process died (killed, or out of memory)")
    finally:
        workers.close()


def _made(
    workers: WorkerProcesses, orders: Sequence[Order], at_once: int
) -> abc.Generator[Record, None, list[Order]]:
    """Yield the records of orders as they are finished; return those whose process died."""
    waiting, running, died = deque(orders), 0, list[Order]()
    while waiting or running:
        while waiting and running < at_once:
            workers.submit(waiting.popleft())
            running += 1
        for ended in workers.wait(None):
            running -= 1
            if ended.failure:
                died.append(ended.task)
            else:
                yield ended.answer
    return died


def _make_in_process(settings: dict[str, Any], folder: Path, order: Order, _: Send) -> Record:
    return make_sample(settings, order, folder)


def _record_path(folder: Path, index: int) -> Path:
    return folder / RECORDS / f"{index:05d}.json"
