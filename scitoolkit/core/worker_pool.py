"""Supervised worker processes of this machine: the one pool of search and of generators.

A worker that dies (segmentation fault, out-of-memory killer) or exceeds a limit fails only its own
task, is killed together with its children, and is replaced. `concurrent.futures` has none
of this: the death of one process there loses the tasks of all.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from scitoolkit.core.errors import BackendError
from scitoolkit.core.worker_process import serve

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_MEMORY_PERIOD = 0.25
DIED = "worker died"


@dataclass(frozen=True)
class Limits:
    """Resource limits of a single task, such as a trial.

    Attributes:
        seconds: wall time of the task, or of one stage of a trial; None for no limit.
        memory: resident memory of a worker process in bytes; None for no limit.
    """

    seconds: float | None = None
    memory: int | None = None


@dataclass(frozen=True)
class Ended:
    """A task that has ended.

    Attributes:
        task: as submitted.
        answer: what the function returned; None if the task failed.
        failure: "worker died", "time limit" or "memory"; "" if the function returned.
        error: description of the failure.
        messages: what the function sent before.
        worker: number of the worker.
        started, finished: seconds of `time.monotonic`.
    """

    task: Any
    answer: Any = None
    failure: str = ""
    error: str = ""
    messages: list[Any] = field(default_factory=list)
    worker: int = 0
    started: float = 0.0
    finished: float = 0.0


class WorkerProcesses:
    """One long-lived, spawned process per worker with a limited number of threads.

    Workers terminate with this process.

    Args:
        function: pickled `function(task, send)`; the process must be able to import it.
        workers: number of processes.
        limits: of each task.
        threads: numerical threads per worker.
        gpus: ids of the GPUs that are assigned in turn; each worker sees one.
        logs: folder for the output of workers; None leaves it on the terminal.
    """

    def __init__(
        self,
        function: bytes,
        workers: int,
        *,
        limits: Limits | None = None,
        threads: int = 1,
        gpus: Sequence[int | str] = (),
        logs: Path | None = None,
    ) -> None:
        self.limits: Limits = limits or Limits()
        self._function, self._threads, self._gpus = function, threads, list(gpus)
        self._logs = logs
        self._pool = [_Worker(number) for number in range(workers)]
        for worker in self._pool:
            self._start(worker)

    @property
    def free(self) -> int:
        """Number of workers without a task."""
        return sum(worker.task is None for worker in self._pool)

    def submit(self, task: Any) -> None:
        """Send a task, which is not None, to a free worker; there must be one."""
        worker = next(w for w in self._pool if w.task is None)
        worker.task, worker.since, worker.messages = task, time.monotonic(), []
        # The next `wait` detects a worker that has just died and fails its task.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            worker.pipe.send(task)

    def wait(self, timeout: float | None) -> list[Ended]:
        """Return the tasks that have ended, waiting up to `timeout` seconds for the first one.

        Raises:
            BackendError: workers cannot load the function or end before they have started.
            Exception: whatever the function raised.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            ended = self._poll(self._patience(deadline))
            if ended or (deadline is not None and time.monotonic() >= deadline):
                return ended

    def close(self) -> None:
        """Kill all workers."""
        for worker in self._pool:
            worker.kill()
        self._pool.clear()

    # --- supervision ------------------------------------------------------------------------

    def _patience(self, deadline: float | None) -> float | None:
        moments = [] if deadline is None else [deadline]
        if self.limits.seconds is not None:
            moments += [w.since + self.limits.seconds for w in self._pool if w.busy and w.ready]
        if self.limits.memory is not None:
            moments.append(time.monotonic() + _MEMORY_PERIOD)
        return max(0.0, min(moments) - time.monotonic()) if moments else None

    def _poll(self, patience: float | None) -> list[Ended]:
        handles: dict[Any, _Worker] = {}
        for worker in self._pool:
            handles[worker.pipe] = handles[worker.process.sentinel] = worker
        ready = connection.wait(list(handles), patience)
        # Read the last messages of workers before checking whether they are alive.
        ended = [e for h in ready if isinstance(h, Connection) for e in self._read(handles[h])]
        for worker in {handles[h].number: handles[h] for h in ready}.values():
            if not worker.process.is_alive():
                # Again, for what it sent between the reading above and its end.
                ended += [*self._read(worker), *self._handle_exit(worker)]
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
                    worker.failed_starts, worker.since, worker.ready = 0, time.monotonic(), True
                if kind == "message":
                    worker.messages.append(content[0])
                if kind == "raised":
                    worker.task = None
                    raise content[0]
                if kind == "done" and worker.busy:
                    yield worker.end(answer=content[0])
        except (EOFError, ConnectionResetError):
            return

    def _handle_exit(self, worker: _Worker) -> list[Ended]:
        code = worker.process.exitcode
        # Reset when a worker is ready, so that deaths during tasks do not add up. Exit code 1 is
        # that of an exception at import, which another start would repeat.
        worker.failed_starts += 1
        if worker.failed_starts > 1 and (code == 1 or worker.failed_starts > 3):
            raise BackendError(
                f"workers end before they have started: {_exit_reason(code)}",
                where=str(self._logs or "see the messages above"),
                fix="a script that starts workers needs `if __name__ == '__main__':`",
            )
        ended = []
        if worker.busy:
            ended.append(worker.end(failure=DIED, error=_exit_reason(code)))
        self._replace(worker)
        return ended

    def _enforce_limits(self) -> list[Ended]:
        ended = []
        for worker in [w for w in self._pool if w.busy]:
            seconds, memory = self.limits.seconds, self.limits.memory
            lasted = time.monotonic() - worker.since
            if worker.ready and seconds is not None and lasted > seconds:
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
        process = context.Process(target=serve, args=(theirs, self._function, log), daemon=False)
        environment = dict.fromkeys(_THREAD_VARIABLES, str(self._threads))
        if self._gpus:
            gpu = self._gpus[worker.number % len(self._gpus)]
            environment["CUDA_VISIBLE_DEVICES"] = str(gpu)
        with _environment(environment):
            process.start()
        # The worker alone holds its end now: the pipe ends when it dies.
        theirs.close()
        worker.process, worker.pipe, worker.ready = process, ours, False


class _Worker:
    """Process of the pool and its current task."""

    process: Any
    pipe: Connection

    def __init__(self, number: int) -> None:
        self.number = number
        self.task: Any = None
        self.failed_starts = 0
        """Number of consecutive processes that ended before they were ready."""
        self.ready = False
        self.since = 0.0
        self.messages: list[Any] = []

    @property
    def busy(self) -> bool:
        return self.task is not None

    def end(self, **result: Any) -> Ended:
        """Return what became of the task, which this worker no longer has."""
        task, self.task = self.task, None
        return Ended(
            task,
            **result,
            messages=self.messages,
            worker=self.number,
            started=self.since,
            finished=time.monotonic(),
        )

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
