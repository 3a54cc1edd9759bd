"""A pool of supervised worker processes on this machine.

A worker that exceeds a limit is killed together with its children, and a worker that dies
(segmentation fault, out-of-memory killer) fails only its own order. Both are replaced. Workers end
with the process that started them.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import multiprocessing
import os
import pickle
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

from scitoolkit.core.errors import BackendError, ConfigError
from scitoolkit.core.uncaught import install_hooks

THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_MEMORY_PERIOD = 0.25
_PR_SET_PDEATHSIG = 1

Send = Callable[[Any], None]
Function = Callable[[Any, Send], Any]


@dataclass(frozen=True)
class Limits:
    """Resource limits of a single order.

    Attributes:
        seconds: wall time; None for no limit.
        memory: resident memory of a worker process in bytes; None for no limit.
    """

    seconds: float | None = None
    memory: int | None = None


@dataclass(frozen=True)
class Ended:
    """End of an order.

    Attributes:
        order: as submitted.
        result: what the function returned; None after a failure.
        failure: `time limit`, `memory` or `worker died`, "" without one.
        error: what happened, in words.
        reports: what the function had sent before a failure.
        worker: number of the worker.
        started, finished: on the clock of `time.monotonic`.
    """

    order: Any
    result: Any
    failure: Literal["", "time limit", "memory", "worker died"] = ""
    error: str = ""
    reports: list[Any] = field(default_factory=list)
    worker: int = 0
    started: float = 0.0
    finished: float = 0.0


class SupervisedPool:
    """One long-lived, spawned process per worker with a limited number of threads.

    Args:
        function: importable or picklable; called in a worker with an order and a function that
            sends reports, which survive the worker's death.
        workers: number of processes.
        limits: of each order.
        threads: numerical threads per worker.
        gpus: ids of the GPUs that are assigned in turn; each worker sees one.
        logs: folder for the output of workers; None leaves it on the terminal.

    Raises:
        ConfigError: `function` cannot be pickled.

    Example:
        def squared(order, send):
            return order**2

        with SupervisedPool(squared, 2) as pool:
            pool.submit(3)
            (ended,) = pool.wait()
    """

    def __init__(
        self,
        function: Function,
        workers: int,
        *,
        limits: Limits | None = None,
        threads: int = 1,
        gpus: Sequence[int | str] = (),
        logs: Path | None = None,
    ) -> None:
        self.limits: Limits = limits or Limits()
        self._threads, self._gpus, self._logs = threads, list(gpus), logs
        self._blob = _pickled(function)
        self._workers = [_Worker(number) for number in range(workers)]
        for worker in self._workers:
            self._start(worker)

    def submit(self, order: Any) -> None:
        """Send an order to a free worker; the caller never submits more orders than workers."""
        worker = next(w for w in self._workers if w.orders == [])
        worker.orders, worker.since, worker.reports = [order], time.monotonic(), []
        # The next `wait` detects a worker that has just died and fails its order.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            worker.pipe.send(order)

    def wait(self, timeout: float | None = None) -> list[Ended]:
        """Return the orders that ended, waiting up to `timeout` seconds for the first one.

        Raises:
            BackendError: workers cannot load the function or end before they have started.
            Exception: what the function raised.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            ended = self._poll(self._timeout(deadline))
            if ended or (deadline is not None and time.monotonic() >= deadline):
                return ended

    def close(self) -> None:
        """Kill all workers."""
        for worker in self._workers:
            worker.kill()

    def __enter__(self) -> SupervisedPool:
        """Return self."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close."""
        self.close()

    def _timeout(self, deadline: float | None) -> float | None:
        moments = [] if deadline is None else [deadline]
        seconds = self.limits.seconds
        if seconds is not None:
            moments += [w.since + seconds for w in self._workers if w.orders and w.ready]
        if self.limits.memory is not None:
            moments.append(time.monotonic() + _MEMORY_PERIOD)
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def _poll(self, patience: float | None) -> list[Ended]:
        handles: dict[Any, _Worker] = {}
        for worker in self._workers:
            handles[worker.pipe] = handles[worker.process.sentinel] = worker
        ready = connection.wait(list(handles), patience)
        # Read the last messages of workers before checking whether they are alive.
        ended = [e for h in ready if isinstance(h, Connection) for e in self._read(handles[h])]
        for worker in {handles[h].number: handles[h] for h in ready}.values():
            if not worker.process.is_alive():
                ended += self._handle_exit(worker)
        return ended + self._enforce_limits()

    def _read(self, worker: _Worker) -> Iterator[Ended]:
        try:
            while worker.pipe.poll():
                kind, *content = worker.pipe.recv()
                if kind == "broken":
                    raise BackendError(
                        f"a worker cannot load its function:\n{content[0].strip()}",
                        fix="define it in a module that every process can import",
                    )
                if kind == "ready":
                    worker.failed_starts, worker.since = 0, time.monotonic()
                    worker.ready = True
                if kind == "report":
                    worker.reports.append(content[0])
                if kind == "raised":
                    raise content[0]
                if kind == "done" and worker.orders:
                    yield worker.end(result=content[0])
        except (EOFError, ConnectionResetError):
            return

    def _handle_exit(self, worker: _Worker) -> list[Ended]:
        code = worker.process.exitcode
        worker.failed_starts += 1
        if worker.failed_starts > 1 and (code == 1 or worker.failed_starts > 3):
            raise BackendError(
                f"workers end before they have started: {_exit_reason(code)}",
                where=str(self._logs or "see the messages above"),
                fix="a script that starts workers needs `if __name__ == '__main__':`",
            )
        ended = []
        if worker.orders:
            ended.append(worker.end(failure="worker died", error=_exit_reason(code)))
        self._replace(worker)
        return ended

    def _enforce_limits(self) -> list[Ended]:
        ended = []
        for worker in [w for w in self._workers if w.orders]:
            seconds, memory = self.limits.seconds, self.limits.memory
            late = worker.ready and seconds is not None
            if late and seconds is not None and time.monotonic() - worker.since > seconds:
                ended.append(worker.end(failure="time limit", error=f"longer than {seconds:g} s"))
            elif memory is not None and (used := _resident(worker.process.pid)) > memory:
                text = f"{used / 2**20:.0f} MiB of memory, more than {memory / 2**20:.0f} MiB"
                ended.append(worker.end(failure="memory", error=text))
            else:
                continue
            self._replace(worker)
        return ended

    def _replace(self, worker: _Worker) -> None:
        worker.kill()
        self._start(worker)

    def _start(self, worker: _Worker) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        log = None if self._logs is None else str(self._logs / f"worker-{worker.number}.log")
        process = context.Process(target=serve, args=(theirs, self._blob, log), daemon=False)
        environment = dict.fromkeys(THREAD_VARIABLES, str(self._threads))
        if self._gpus:
            gpu = self._gpus[worker.number % len(self._gpus)]
            environment["CUDA_VISIBLE_DEVICES"] = str(gpu)
        with _environment(environment):
            process.start()
        theirs.close()
        worker.process, worker.pipe, worker.ready = process, ours, False


class _Worker:
    """Process of the pool and its current order."""

    process: Any
    pipe: Connection

    def __init__(self, number: int) -> None:
        self.number = number
        self.orders: list[Any] = []
        """The order in progress, or none; an order itself may be None."""
        self.failed_starts = 0
        """Number of consecutive processes that ended before they were ready."""
        self.ready = False
        self.since = 0.0
        self.reports: list[Any] = []

    def end(self, **how: Any) -> Ended:
        """Return the end of the current order, after which the worker is free."""
        (order,), self.orders = self.orders, []
        times = {"started": self.since, "finished": time.monotonic()}
        how = {"result": None, "reports": self.reports, **how}
        return Ended(order, worker=self.number, **times, **how)

    def kill(self) -> None:
        pid = self.process.pid
        try:
            if os.getpgid(pid) == pid:
                os.killpg(pid, signal.SIGKILL)
            else:  # it has not yet become the leader of a process group
                os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.join()
        self.pipe.close()
        self.process.close()


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Set environment variables while a process starts; numerical libraries read them at import."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _pickled(function: Function) -> bytes:
    try:
        return pickle.dumps(function)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(
            f"a function cannot be sent to another process ({error})",
            allowed="a function at the top of a module, or an object of a class defined there",
            fix="move it there, or run in this process: workers=1 without limits (which end a "
            "process), threads or gpus",
        ) from None


def _resident(pid: int) -> int:
    """Return the resident memory of a process in bytes; 0 if it cannot be determined."""
    try:
        with open(f"/proc/{pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return 0


def _exit_reason(code: int | None) -> str:
    if code is None or code >= 0:
        return f"the worker ended with exit code {code}"
    name = signal.Signals(-code).name if -code in list(signal.Signals) else str(-code)
    hint = " (out of memory?)" if -code == signal.SIGKILL else ""
    return f"the worker was killed by {name}{hint}"


def serve(pipe: Connection, function: bytes, log: str | None) -> None:
    """Main function of a worker process: run orders from a pipe until it closes.

    Messages to the parent: ("ready",), ("broken", traceback), ("report", content),
    ("raised", exception), ("done", result).

    Args:
        pipe: connection to the parent.
        function: pickled.
        log: file for standard output and error; None inherits them.
    """
    install_hooks()
    _become_group_leader()
    _terminate_with_parent()
    if log is not None:
        _redirect_output(log)
    try:
        call = pickle.loads(function)
    except BaseException:
        pipe.send(("broken", traceback.format_exc()))
        return
    pipe.send(("ready",))
    while True:
        try:
            pipe.send(_answer(call, pipe.recv(), lambda content: pipe.send(("report", content))))
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return


def _answer(call: Function, order: Any, send: Send) -> tuple[str, Any]:
    try:
        return "done", call(order, send)
    except (BrokenPipeError, ConnectionResetError):
        raise
    except Exception as error:
        text = traceback.format_exc()
        error.add_note(text)
        try:
            pickle.loads(pickle.dumps(error))
        except Exception:
            return "raised", RuntimeError(text)
        return "raised", error


def _become_group_leader() -> None:
    """Become a process-group leader, so that children are killed too; ignore SIGINT."""
    if os.getpgrp() != os.getpid():
        os.setsid()
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _terminate_with_parent() -> None:
    """End with the parent process.

    What an order has started ends too: a forked process kills the group once this process or its
    parent has ended.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    read_end, write_end = os.pipe()
    if os.fork() == 0:
        os.close(write_end)
        connection.wait([read_end, parent.sentinel])
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os.close(read_end)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _redirect_output(log: str) -> None:
    """Redirect standard output, standard error and crash tracebacks to a file."""
    os.makedirs(os.path.dirname(log), exist_ok=True)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)
    faulthandler.enable()
