"""Pool of surrogates in one process with a memory budget.

After Computron (Zou, Zhang, Zhou, Li, Liu, "Computron: Serving Distributed Deep Learning Models
with Model Parallel Swapping", arXiv:2306.13835): the queue with the oldest first request is served
first, together with all requests for the same surrogate. Surrogates of one architecture share
generated code, so that loading one means reading its weights only. Memory, eviction, reading and
calls are those of `scitoolkit_pool.c`; queues and futures are here.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import json
import os
import threading
import weakref
from collections import OrderedDict, deque
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.errors import BackendError, CheckpointError, ConfigError, DataError
from scitoolkit.core.suggest import nearest_name
from scitoolkit.core.units import parse_bytes
from scitoolkit.deploy import pool_core
from scitoolkit.deploy.interface import STATUSES
from scitoolkit.deploy.library import Functions

Array = np.ndarray
Answer = tuple[tuple[Array, ...], Array]
"""Outputs (samples, *shape) and the status of each sample: 0, 1 outside the box, 2 not finite."""
BATCH = 256
"""Largest number of samples of requests that are joined in one call."""


@dataclass(eq=False)
class _Surrogate:
    """A surrogate of a pool.

    Attributes:
        key: its name in C. No other surrogate ever has it: arrays that were checked for this one
            never reach another that has been added under the same name meanwhile.
        path: of its file.
        text, about: its description.
        functions: of it.
    """

    key: bytes
    path: Path
    text: bytes = b""
    about: dict[str, Any] = field(default_factory=dict)
    functions: Functions = field(init=False)

    def describe(self, name: str, text: bytes) -> None:
        """Set the description, which changes with the file; its arrays do not."""
        try:
            self.text, self.about = text, json.loads(text)
        except (ValueError, RecursionError):
            raise _damaged("damaged: its header cannot be read", self.path) from None
        self.functions = Functions(name, self.about)


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

    Without a C compiler and a prebuilt library, `add` loads the compiled pool beside the weights.

    Example:
        pool = Pool("100MiB")
        for path in Path("members").glob("*.weights"):
            pool.add(path.stem, path)
        (state,), status = pool("member_007", state)
    """

    def __init__(self, budget: int | str, *, workers: int = 2, queue: int = 10_000) -> None:
        if workers < 1 or queue < 1:
            raise ConfigError(f"workers={workers}, queue={queue}", allowed="at least 1 of each")
        self._pool, self._budget = ctypes.c_void_p(), parse_bytes(budget, key="budget")
        with contextlib.suppress(BackendError):  # told by `add`
            self._start(pool_core.library())
        self._surrogates: dict[str, _Surrogate] = {}
        self._added = itertools.count()
        # Hits do not take this lock, which is for names and queues.
        self._work = threading.Condition(threading.Lock())
        self._queues: OrderedDict[str, deque[_Request]] = OrderedDict()
        self._queued, self._limit = 0, queue
        self._closed = False
        self._batches = 0
        self._wanted = workers
        self._threads: list[threading.Thread] = []

    def _start(self, core: ctypes.CDLL) -> None:
        self._core = core
        if core.stk_pool_new(self._budget, ctypes.byref(self._pool)):
            raise ConfigError(self._reason(), fix='Pool("100MiB")')
        # Calls hold the pool, so that none is in progress; at exit some may be.
        weakref.finalize(self, core.stk_pool_free, self._pool).atexit = False

    def add(self, name: str, path: Path | str) -> None:
        """Add a surrogate; its weights are read when it is first called.

        Args:
            name: for calls.
            path: a file of `scitoolkit export RUN -o NAME.weights`, with its code in the same
                folder.

        Raises:
            CheckpointError: a missing or damaged file, no code, or code for another processor.
            ConfigError: the name is in use, or the weights are larger than the budget.
            BackendError: no C compiler, no prebuilt library, and no compiled pool beside the file.
        """
        new = _Surrogate(str(next(self._added)).encode(), Path(path))
        if "\0" in str(path):  # where a path ends in C
            raise _damaged("no such file", new.path)
        with self._work:
            if not self._pool:
                self._start(pool_core.beside(new.path))
        status = self._core.stk_pool_add(self._pool, new.key, os.fsencode(path))
        if status == pool_core.TOO_LARGE:
            raise ConfigError(self._reason(), fix="Pool(budget) with a larger budget")
        if status:
            raise self._refusal(status, name, new.path)
        try:
            new.describe(name, self._core.stk_pool_about(self._pool, new.key))
            with self._work:
                self._open()
                if name in self._surrogates:
                    raise ConfigError(f"{name!r} is in the pool already", fix="remove(name) first")
                self._surrogates[name] = new
        except BaseException:
            self._core.stk_pool_remove(self._pool, new.key)
            raise

    def remove(self, name: str) -> None:
        """Remove a surrogate after calls in progress have ended."""
        with self._work:
            gone = self._surrogate(name)
            del self._surrogates[name]
        self._core.stk_pool_remove(self._pool, gone.key)

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
        self._open(serving=True)
        surrogate = self._surrogate(name)
        samples = surrogate.functions.samples(inputs, function)
        outputs, statuses = surrogate.functions.answers(samples, function)
        status = self._core.stk_pool_call(
            self._pool,
            surrogate.key,
            function.encode(),
            samples,
            *_addresses(inputs),
            *_addresses(outputs),
            statuses.ctypes.data,
        )
        if status > STATUSES["NOT_FINITE"]:
            raise self._refusal(status, name, surrogate.path)
        return outputs, statuses

    def submit(self, name: str, *inputs: Array, function: str = "") -> Future[Answer]:
        """Queue a call; waiting requests for one surrogate are joined.

        Raises:
            DataError: no such surrogate, or arrays of wrong number, shape, dtype or order.
            BackendError: too many waiting requests, or a closed pool.
        """
        self._open()
        functions = self._surrogate(name).functions
        samples = functions.samples(inputs, function)
        request = _Request(inputs, function, samples, not functions.shared(function))
        with self._work:
            self._open()
            if self._queued >= self._limit:
                raise BackendError(f"{self._queued} requests wait", fix="submit later, or queue=N")
            self._queues.setdefault(name, deque()).append(request)
            self._queued += 1
            if len(self._threads) < self._wanted:
                self._threads.append(
                    threading.Thread(target=self._serve, name="scitoolkit-pool", daemon=True)
                )
                self._threads[-1].start()
            self._work.notify()
        return request.answer

    def prefetch(self, *names: str) -> None:
        """Read surrogates in advance, in the order of future calls.

        A prefetched surrogate stays in memory until it is called or another call needs the memory;
        surrogates that do not fit yet are read as earlier ones are called.
        """
        with self._work:  # no name leaves meanwhile
            self._open()
            keys = [self._surrogate(name).key for name in names]
            if keys:
                many = (ctypes.c_char_p * len(keys))(*keys)
                status = self._core.stk_pool_prefetch(self._pool, many, len(keys))
                if status:
                    raise BackendError(self._reason())

    def about(self, name: str) -> dict[str, Any]:
        """Return functions, arrays, units and boxes of a surrogate."""
        with self._work:  # it stays while its description is read
            surrogate = self._surrogate(name)
            text = self._core.stk_pool_about(self._pool, surrogate.key)
            if text != surrogate.text:
                surrogate.describe(name, text)
            return surrogate.about

    def names(self) -> list[str]:
        """Return the names of all surrogates, sorted."""
        return sorted(self._surrogates.copy())

    def statistics(self) -> dict[str, int]:
        """Return counts of calls, hits, loads, evictions and failures, and bytes in memory."""
        counts = pool_core.Counts(budget_bytes=self._budget)
        if self._pool:
            self._core.stk_pool_statistics(self._pool, ctypes.byref(counts))
        own = {"batches": self._batches, "queued": self._queued, "models": len(self._surrogates)}
        return {name: int(getattr(counts, name)) for name in pool_core.COUNTS} | own

    def close(self, *, finish: bool = True) -> None:
        """Close the pool after answering waiting requests; `finish=False` cancels them."""
        with self._work:
            self._closed = True
            if not finish:
                for queue in self._queues.values():
                    for request in queue:
                        request.answer.cancel()
                self._queues.clear()
                self._queued = 0
            self._work.notify_all()
        if self._pool:
            self._core.stk_pool_prefetch(self._pool, None, 0)
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

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
                self._batches += 1
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

    def _surrogate(self, name: str) -> _Surrogate:
        surrogate = self._surrogates.get(name)
        if surrogate is None:
            near = nearest_name(name, self._surrogates.copy())
            raise DataError(
                f"no surrogate {name!r} in the pool",
                allowed=f"{len(self._surrogates)} names" + (f", such as {near!r}" if near else ""),
                fix="add(name, path)",
            )
        return surrogate

    def _open(self, *, serving: bool = False) -> None:
        if self._closed and not (serving and threading.current_thread() in self._threads):
            raise BackendError("the pool is closed")

    def _reason(self) -> str:
        """Return the message of the last call in C of this thread that failed."""
        return str(self._core.stk_pool_error().decode(errors="replace"))

    def _refusal(self, status: int, name: str, path: Path) -> Exception:
        """Return the error of a call in C with its status."""
        if status < pool_core.UNKNOWN:
            return BackendError(f"{name!r} returned status {status}")
        if status == pool_core.UNKNOWN:  # removed while the call waited
            return DataError(f"no surrogate {name!r} in the pool", fix="add(name, path)")
        if status == pool_core.FILE:
            return _damaged(self._reason(), path)
        return (
            MemoryError(self._reason()) if status == pool_core.MEMORY else DataError(self._reason())
        )


def _damaged(what: str, path: Path) -> CheckpointError:
    start = f"{path}: "
    return CheckpointError(
        what.removeprefix(start),
        where=str(path) if what.startswith(start) else "",
        fix=f"scitoolkit export RUN -o {path.name}",
    )


def _addresses(arrays: Sequence[Array]) -> tuple[Any, int]:
    """Return the addresses of arrays for C, and their number."""
    number = len(arrays)
    return (ctypes.c_void_p * number)(*[a.ctypes.data for a in arrays]), number


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
