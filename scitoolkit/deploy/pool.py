"""Pool of surrogates in one process with a memory budget.

After Computron (Zou, Zhang, Zhou, Li, Liu, "Computron: Serving Distributed Deep Learning Models
with Model Parallel Swapping", arXiv:2306.13835): the queue with the oldest first request is served
first, together with all requests for the same surrogate. Surrogates of one architecture share
generated code, so that loading one means reading its weights only.
"""

from __future__ import annotations

import os
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.errors import BackendError, CheckpointError, ConfigError, DataError
from scitoolkit.core.suggest import nearest_name
from scitoolkit.core.units import parse_bytes
from scitoolkit.deploy.library import Library
from scitoolkit.deploy.packed import SHELL, PackedFile, read_header, read_weights
from scitoolkit.deploy.residency import Entry, Residency, rounded
from scitoolkit.deploy.source import common

Array = np.ndarray
Answer = tuple[tuple[Array, ...], Array]
"""Outputs (samples, *shape) and the status of each sample: 0, 1 outside the box, 2 not finite."""
BATCH = 256
"""Largest number of samples of requests that are joined in one call."""


@dataclass(eq=False)
class _Model(Entry):
    """A cache entry with its file and code."""

    file: PackedFile = None  # type: ignore[assignment]
    shell: Library = None  # type: ignore[assignment]
    verified: bool = False


@dataclass(eq=False)
class _Request:
    inputs: Sequence[Array]
    function: str
    samples: int
    joins: bool
    answer: Future[Answer] = field(default_factory=Future)


class Pool:
    """Surrogates called by name, with a budget for the weights in memory; thread-safe.

    A surrogate that is not in memory is read from its file. Entries with the least cost of reading
    them again, weighted by their frequency of use and relative to their size, are evicted.

    Args:
        budget: bytes of weights in memory, or text such as "100MiB".
        workers: number of threads that serve `submit`.
        queue: largest number of waiting requests of `submit`.

    Example:
        pool = Pool("100MiB")
        for path in Path("members").glob("*.weights"):
            pool.add(path.stem, path)
        (state,), status = pool("member_007", state)
    """

    def __init__(self, budget: int | str, *, workers: int = 2, queue: int = 10_000) -> None:
        if workers < 1 or queue < 1:
            raise ConfigError(f"workers={workers}, queue={queue}", allowed="at least 1 of each")
        self._memory = Residency(parse_bytes(budget, key="budget"))
        self._models: dict[str, _Model] = {}
        self._shells: dict[Path, Library] = {}
        lock = threading.Lock()
        # Two conditions of one lock, so that a hit does not wake threads that wait for requests.
        self._changed, self._work = threading.Condition(lock), threading.Condition(lock)
        self._waiting: deque[object] = deque()
        self._queues: OrderedDict[str, deque[_Request]] = OrderedDict()
        self._queued, self._limit = 0, queue
        self._ahead: deque[str] = deque()
        self._closed = False
        self._counts = {"calls": 0, "hits": 0, "loads": 0, "failures": 0, "batches": 0}
        self._wanted = workers
        self._threads: list[threading.Thread] = []
        self._reader: threading.Thread | None = None

    def add(self, name: str, path: Path | str) -> None:
        """Add a surrogate; its weights are read when it is first called.

        Args:
            name: for calls.
            path: a file of `scitoolkit export RUN -o NAME.weights`, with its code in the same
                folder.

        Raises:
            CheckpointError: a missing or damaged file, no code, or code for another processor.
            ConfigError: the name is in use, or the weights are larger than the budget.
        """
        file = read_header(Path(path))
        if rounded(file.size) > self._memory.budget:
            raise ConfigError(
                f"{name!r} has {file.size} bytes of weights, more than the budget of "
                f"{self._memory.budget}",
                where=str(path),
                fix=f"Pool({2 * file.size})",
            )
        shell = self._shell(file)
        with self._changed:
            self._open()
            if name in self._models:
                raise ConfigError(f"{name!r} is in the pool already", fix="remove(name) first")
            self._models[name] = _Model(name, rounded(file.size), file=file, shell=shell)

    def remove(self, name: str) -> None:
        """Remove a surrogate after calls in progress have ended."""
        with self._changed:
            model = self._model(name)
            del self._models[name]
            self._changed.notify_all()
            self._changed.wait_for(lambda: not model.users and not model.loading)
            self._memory.release(model)
            self._changed.notify_all()

    def __call__(self, name: str, *inputs: Array, function: str = "") -> Answer:
        """Return the outputs of a surrogate and the status of each sample.

        Args:
            name: of a surrogate in the pool.
            inputs: float32 arrays in C order, (samples, *shape); shared ones without samples.
            function: name of a function in `about(name)`.

        Raises:
            DataError: no such surrogate, or arrays of wrong number, shape, dtype or order.
            CheckpointError: its file is missing or damaged.
        """
        with self._borrowed(name) as model:
            assert model.memory is not None
            return model.shell.run(inputs, function, [model.memory.ctypes.data])

    def submit(self, name: str, *inputs: Array, function: str = "") -> Future[Answer]:
        """Queue a call; waiting requests for one surrogate are joined.

        Raises:
            DataError: no such surrogate, or arrays of wrong number, shape, dtype or order.
            BackendError: too many waiting requests, or a closed pool.
        """
        with self._changed:
            self._open()
            shell = self._model(name).shell
        samples = shell.samples(inputs, function)
        request = _Request(inputs, function, samples, not shell.shared(function))
        with self._work:
            self._open()
            if self._queued >= self._limit:
                raise BackendError(f"{self._queued} requests wait", fix="submit later, or queue=N")
            self._queues.setdefault(name, deque()).append(request)
            self._queued += 1
            if len(self._threads) < self._wanted:
                self._start(self._threads, self._serve)
            self._work.notify()
        return request.answer

    def prefetch(self, *names: str) -> None:
        """Read surrogates in advance, in the order of future calls.

        A prefetched surrogate stays in memory until it is called or another call needs the memory;
        surrogates that do not fit yet are read as earlier ones are called.
        """
        with self._changed:
            self._open()
            for name in names:
                self._model(name)
            self._ahead.extend(names)
            if self._reader is None:
                started: list[threading.Thread] = []
                self._start(started, self._read_ahead)
                self._reader = started[0]
            self._work.notify_all()
            self._changed.notify_all()

    def about(self, name: str) -> dict[str, Any]:
        """Return functions, arrays, units and boxes of a surrogate."""
        with self._changed:
            return self._model(name).file.about

    def names(self) -> list[str]:
        """Return the names of all surrogates, sorted."""
        with self._changed:
            return sorted(self._models)

    def statistics(self) -> dict[str, int]:
        """Return counts of calls, hits, loads, evictions and failures, and bytes in memory."""
        with self._changed:
            return {
                **self._counts,
                "evictions": self._memory.evictions,
                "queued": self._queued,
                "models": len(self._models),
                "resident_bytes": self._memory.resident_bytes(),
                "held_bytes": self._memory.held,
                "budget_bytes": self._memory.budget,
            }

    def close(self, *, finish: bool = True) -> None:
        """Close the pool after answering waiting requests; `finish=False` cancels them."""
        with self._changed:
            self._closed = True
            if not finish:
                for queue in self._queues.values():
                    for request in queue:
                        request.answer.cancel()
                self._queues.clear()
                self._queued = 0
            self._work.notify_all()
            self._changed.notify_all()
        for thread in (*self._threads, *([self._reader] if self._reader else [])):
            thread.join()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _borrowed(self, name: str) -> Iterator[_Model]:
        """Hold a surrogate in memory for one call."""
        with self._changed:
            self._open(serving=True)
            model = self._model(name)
            self._counts["calls"] += 1
            if model.resident:
                self._counts["hits"] += 1
            else:
                model = self._bring(name)
            self._memory.use(model, len(self._models))
            model.users += 1
        try:
            yield model
        finally:
            with self._changed:
                model.users -= 1
                if not model.users:
                    self._changed.notify_all()

    def _bring(self, name: str) -> _Model:
        """Load a surrogate; called with the lock, which is released while reading.

        Threads that need memory receive it in the order of their requests.
        """
        ticket = object()
        try:
            while True:
                model = self._model(name)
                if model.resident:
                    return model
                if model.memory is not None:  # another thread reads it, or it is being evicted
                    self._leave_line(ticket)
                else:
                    if ticket not in self._waiting:
                        self._waiting.append(ticket)
                    if self._waiting[0] is ticket and self._memory.take(model):
                        model.loading = True
                        break
                self._changed.wait()
        finally:
            self._leave_line(ticket)
        self._read(model)
        return model

    def _leave_line(self, ticket: object) -> None:
        if ticket in self._waiting:
            if self._waiting[0] is ticket:
                self._memory.unmark()
            self._waiting.remove(ticket)
            self._changed.notify_all()

    def _read(self, model: _Model) -> None:
        """Read the weights into memory; called with the lock, which is released while reading."""
        assert model.memory is not None
        memory, file, verified = model.memory, model.file, model.verified
        self._changed.release()
        failure: BaseException | None = None
        start = time.perf_counter()
        try:
            file, verified = _current(file, verified)
            read_weights(file, memory, verify=not verified)
        except BaseException as error:  # waiting threads must be notified of KeyboardInterrupt, too
            failure = error
        seconds = time.perf_counter() - start
        self._changed.acquire()
        model.loading = False
        self._changed.notify_all()
        if failure is not None:
            self._counts["failures"] += 1
            self._memory.release(model)
            raise failure
        self._counts["loads"] += 1
        self._memory.read(model, seconds)
        model.file, model.verified = file, True

    def _read_ahead(self) -> None:
        with self._changed:
            while True:
                self._work.wait_for(lambda: self._closed or bool(self._ahead))
                if self._closed:
                    return
                model = self._models.get(self._ahead[0])
                if model is None or model.memory is not None or model.loading:
                    self._ahead.popleft()
                elif not self._waiting and self._memory.take(model, ahead=True):
                    self._ahead.popleft()
                    model.loading = model.awaited = True
                    try:
                        self._read(model)
                    except CheckpointError:
                        continue  # the next call reads it again and raises the error
                else:
                    self._changed.wait()

    def _serve(self) -> None:
        while True:
            with self._work:
                self._work.wait_for(lambda: self._closed or bool(self._queues))
                if not self._queues:
                    return
                name, queue = next(iter(self._queues.items()))
                taken = _together(queue)
                self._queued -= len(taken)
                # The rest of this queue moves behind the requests of other surrogates.
                del self._queues[name]
                if queue:
                    self._queues[name] = queue
                self._counts["batches"] += 1
            self._answer(name, [r for r in taken if r.answer.set_running_or_notify_cancel()])

    def _answer(self, name: str, requests: Sequence[_Request]) -> None:
        if not requests:
            return
        first = requests[0]
        try:
            if len(requests) == 1:
                first.answer.set_result(self(name, *first.inputs, function=first.function))
                return
            joined = [np.concatenate(a) for a in zip(*(r.inputs for r in requests), strict=True)]
            outputs, status = self(name, *joined, function=first.function)
        except Exception as error:
            for request in requests:
                if not request.answer.done():
                    request.answer.set_exception(error)
            return
        begin = 0
        for request in requests:
            own = slice(begin, begin + request.samples)
            request.answer.set_result((tuple(o[own].copy() for o in outputs), status[own].copy()))
            begin += request.samples

    def _shell(self, file: PackedFile) -> Library:
        """Return the code of a file; a library is loaded once."""
        path = file.shell.resolve()
        with self._changed:
            shell = self._shells.get(path)
        if shell is None:
            shell = Library(path, SHELL)
            with self._changed:
                shell = self._shells.setdefault(path, shell)
        try:
            same = common(file.about) == shell.about
        except (KeyError, TypeError, AttributeError):
            same = False
        if not same or shell.about["weights_bytes"] != file.size:
            raise CheckpointError(
                f"its arrays do not match {path.name}",
                where=str(file.path),
                fix=f"scitoolkit export RUN -o {file.path.name}",
            )
        return shell

    def _model(self, name: str) -> _Model:
        model = self._models.get(name)
        if model is None:
            near = nearest_name(name, self._models)
            raise DataError(
                f"no surrogate {name!r} in the pool",
                allowed=f"{len(self._models)} names" + (f", such as {near!r}" if near else ""),
                fix="add(name, path)",
            )
        return model

    def _open(self, *, serving: bool = False) -> None:
        if self._closed and not (serving and threading.current_thread() in self._threads):
            raise BackendError("the pool is closed")

    def _start(self, threads: list[threading.Thread], target: Any) -> None:
        thread = threading.Thread(target=target, name="scitoolkit-pool", daemon=True)
        threads.append(thread)
        thread.start()


def _together(queue: deque[_Request]) -> list[_Request]:
    """Pop the first request, and those after it that can be joined with it."""
    taken = [queue.popleft()]
    first, samples = taken[0], taken[0].samples
    while (
        queue
        and first.joins
        and queue[0].function == first.function
        and samples + queue[0].samples <= BATCH
    ):
        taken.append(queue.popleft())
        samples += taken[-1].samples
    return taken


def _current(file: PackedFile, verified: bool) -> tuple[PackedFile, bool]:
    """Return the present header of a file, which may have been replaced by a compatible one."""
    try:
        status = os.stat(file.path)
        if (status.st_ino, status.st_size, status.st_mtime_ns) == file.identity:
            return file, verified
    except OSError:
        pass  # reading the header raises the error
    new = read_header(file.path)
    if (new.key, new.size) != (file.key, file.size) or common(new.about) != common(file.about):
        raise CheckpointError(
            "was replaced by a surrogate with other arrays or code",
            where=str(file.path),
            fix="remove(name) and add(name, path)",
        )
    return new, False
