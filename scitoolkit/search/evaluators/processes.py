"""Evaluator with supervised worker processes on this machine."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
from collections.abc import Iterator, Sequence
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, ClassVar, Literal

from scitoolkit.core.errors import BackendError, ConfigError
from scitoolkit.search.evaluators.base import Evaluator, InProcess, Limits
from scitoolkit.search.evaluators.config import EvaluatorConfig, Resources
from scitoolkit.search.trial import Outcome, TrialTask
from scitoolkit.search.worker import Evaluate, serve

_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_MEMORY_PERIOD = 0.25


class Processes(Evaluator):
    """One long-lived, spawned process per worker with a limited number of threads.

    A worker whose trial exceeds a limit is killed together with its children; a worker that dies
    (segmentation fault, out-of-memory killer) fails only its own trial. Both are replaced.
    Workers terminate with the manager.

    Args:
        evaluate: importable function or picklable object; see `TrialContext`.
        workers: number of processes.
        limits: of each trial.
        threads: numerical threads per worker.
        gpus: ids of the GPUs that are assigned in turn; each worker sees one.
        logs: folder for the output of workers; None leaves it on the terminal.

    Raises:
        ConfigError: `evaluate` cannot be pickled.
    """

    def __init__(
        self,
        evaluate: Evaluate,
        workers: int,
        *,
        limits: Limits | None = None,
        threads: int = 1,
        gpus: Sequence[int | str] = (),
        logs: Path | None = None,
    ) -> None:
        self.workers: int = workers
        self._limits = limits or Limits()
        self._threads, self._gpus, self._logs = threads, list(gpus), logs
        self._blob = _pickled(evaluate)
        self._pool = [_Worker(number) for number in range(workers)]
        for worker in self._pool:
            self._start(worker)

    def submit(self, task: TrialTask) -> None:
        """Send the task to a free worker."""
        worker = next(w for w in self._pool if w.task is None)
        worker.task, worker.since, worker.epochs = task, self.now(), []
        # The next `wait` detects a worker that has just died and fails its trial.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            worker.pipe.send(task)

    def wait(self, timeout: float | None) -> list[Outcome]:
        """Return outcomes of trials that finished, failed, crashed or exceeded a limit.

        Raises:
            BackendError: workers cannot load the evaluation or end before they have started.
        """
        deadline = None if timeout is None else self.now() + timeout
        while True:
            outcomes = self._poll(self._timeout(deadline))
            if outcomes or (deadline is not None and self.now() >= deadline):
                return outcomes

    def close(self) -> None:
        """Kill all workers."""
        for worker in self._pool:
            worker.kill()

    # --- supervision ------------------------------------------------------------------------

    def _timeout(self, deadline: float | None) -> float | None:
        moments = [] if deadline is None else [deadline]
        if self._limits.seconds is not None:
            moments += [w.since + self._limits.seconds for w in self._pool if w.task and w.ready]
        if self._limits.memory is not None:
            moments.append(self.now() + _MEMORY_PERIOD)
        return max(0.0, min(moments) - self.now()) if moments else None

    def _poll(self, patience: float | None) -> list[Outcome]:
        handles: dict[Any, _Worker] = {}
        for worker in self._pool:
            handles[worker.pipe] = handles[worker.process.sentinel] = worker
        ready = connection.wait(list(handles), patience)
        # Read the last messages of workers before checking whether they are alive.
        outcomes = [o for h in ready if isinstance(h, Connection) for o in self._read(handles[h])]
        for worker in {handles[h].number: handles[h] for h in ready}.values():
            if not worker.process.is_alive():
                # Again, for what it sent between the reading above and its end.
                outcomes += [*self._read(worker), *self._handle_exit(worker)]
        return outcomes + self._enforce_limits()

    def _read(self, worker: _Worker) -> Iterator[Outcome]:
        try:
            while worker.pipe.poll():
                kind, *content = worker.pipe.recv()
                if kind == "broken":
                    raise BackendError(
                        f"a worker cannot load the evaluation:\n{content[0].strip()}",
                        fix="define it in a module that every process can import",
                    )
                if kind == "ready":
                    worker.failed_starts, worker.since, worker.ready = 0, self.now(), True
                if kind == "epoch":
                    worker.epochs.append(content[0])
                if kind == "done" and worker.task is not None:
                    yield self._finished(worker, content[0])
        except (EOFError, ConnectionResetError):
            return

    def _finished(self, worker: _Worker, outcome: Outcome) -> Outcome:
        outcome.started, outcome.finished = worker.since, self.now()
        outcome.worker, worker.task = worker.number, None
        return outcome

    def _failed(self, worker: _Worker, failure: str, error: str) -> Outcome:
        assert worker.task is not None
        outcome = Outcome(worker.task, failure=failure, error=error, epochs=worker.epochs)
        return self._finished(worker, outcome)

    def _handle_exit(self, worker: _Worker) -> list[Outcome]:
        code = worker.process.exitcode
        # Reset when a worker is ready, so that deaths during trials do not add up. Exit code 1 is
        # that of an exception at import, which another start would repeat.
        worker.failed_starts += 1
        if worker.failed_starts > 1 and (code == 1 or worker.failed_starts > 3):
            raise BackendError(
                f"workers end before they have started: {_exit_reason(code)}",
                where=str(self._logs or "see the messages above"),
                fix="a script that starts workers needs `if __name__ == '__main__':`",
            )
        outcomes = []
        if worker.task is not None:
            outcomes.append(self._failed(worker, "worker died", _exit_reason(code)))
        self._replace(worker)
        return outcomes

    def _enforce_limits(self) -> list[Outcome]:
        outcomes = []
        for worker in [w for w in self._pool if w.task is not None]:
            seconds, memory = self._limits.seconds, self._limits.memory
            late = worker.ready and seconds is not None and self.now() - worker.since > seconds
            if late:
                outcomes.append(self._failed(worker, "time limit", f"longer than {seconds:g} s"))
            elif memory is not None and (used := _resident(worker.process.pid)) > memory:
                text = f"{used / 2**20:.0f} MiB of memory, more than {memory / 2**20:.0f} MiB"
                outcomes.append(self._failed(worker, "memory", text))
            else:
                continue
            self._replace(worker)
        return outcomes

    def _replace(self, worker: _Worker) -> None:
        worker.kill()
        self._start(worker)

    def _start(self, worker: _Worker) -> None:
        context = multiprocessing.get_context("spawn")
        ours, theirs = context.Pipe()
        log = None if self._logs is None else str(self._logs / f"worker-{worker.number}.log")
        process = context.Process(target=serve, args=(theirs, self._blob, log), daemon=False)
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
    """Process of the pool and its current trial."""

    process: Any
    pipe: Connection

    def __init__(self, number: int) -> None:
        self.number = number
        self.task: TrialTask | None = None
        self.failed_starts = 0
        """Number of consecutive processes that ended before they were ready."""
        self.ready = False
        self.since = 0.0
        self.epochs: list[dict[str, float]] = []

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


def _pickled(evaluate: Evaluate) -> bytes:
    try:
        return pickle.dumps(evaluate)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise ConfigError(
            f"the evaluation cannot be sent to another process ({error})",
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


class ProcessesConfig(EvaluatorConfig):
    """Worker processes on this machine; a single worker without limits runs in this process."""

    reads: ClassVar[frozenset[str]] = frozenset(
        {"workers", "threads", "gpus", "trial_seconds", "trial_memory"}
    )

    name: Literal["processes"] = "processes"

    def build(self, evaluate: Evaluate, resources: Resources) -> Evaluator:
        """Return the evaluator with started processes; `InProcess` for default resources."""
        if resources == Resources(logs=resources.logs):
            return InProcess(evaluate)
        return Processes(
            evaluate,
            resources.workers,
            limits=resources.limits,
            threads=resources.threads,
            gpus=resources.gpus,
            logs=resources.logs,
        )
