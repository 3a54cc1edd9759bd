"""Trials on many nodes, by Ray or MPI, through DeepHyper's evaluators.

DeepHyper transfers tasks and outcomes between nodes. Limits and failures are handled by the local
worker processes, so that a trial behaves the same on a laptop and on a cluster.
"""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import os
import pickle
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Literal

from scitoolkit.core.errors import BackendError, ConfigError, missing_extra
from scitoolkit.search.evaluators.base import Evaluator, InProcess, Limits
from scitoolkit.search.evaluators.config import EvaluatorConfig, Resources
from scitoolkit.search.evaluators.processes import Processes
from scitoolkit.search.trial import Outcome, TrialTask
from scitoolkit.search.worker import Evaluate

Method = Literal["ray", "mpi", "loky"]
_NAMES = {"ray": "ray", "mpi": "mpicomm", "loky": "loky"}
_PACKAGES = {"ray": ("ray", "ray"), "mpi": ("mpi4py", "mpi")}  # package, extra
_processes: dict[tuple[bytes, Limits], Processes] = {}


class DeepHyperEvaluator(Evaluator):
    """Runs trials through an evaluator of DeepHyper.

    Args:
        evaluate: importable function or picklable object; see `TrialContext`.
        method: `ray` (the cluster at `RAY_ADDRESS`, else this machine), `mpi` (all ranks except
            the first) or `loky` (processes of this machine).
        workers: number of parallel trials; with MPI it follows from the number of ranks.
        limits: of each trial, enforced by the node that runs it.
        gpus_per_trial: GPUs that Ray reserves per trial.

    Raises:
        BackendError: DeepHyper, Ray or mpi4py is missing or cannot start.
    """

    blocking = True

    def __init__(
        self,
        evaluate: Evaluate,
        method: Method,
        workers: int,
        *,
        limits: Limits | None = None,
        gpus_per_trial: int = 0,
    ) -> None:
        self._stack = contextlib.ExitStack()
        sent = {
            "evaluate": pickle.dumps(evaluate),
            "limits": limits or Limits(),
            "paths": list(sys.path),
        }
        settings: dict[str, Any] = {"num_workers": workers, "run_function_kwargs": sent}
        if method == "ray":
            settings |= _ray_settings(workers, gpus_per_trial)
            self._stack.enter_context(_ray_session())
        self._evaluator = _create(method, settings)
        if method == "mpi":
            self._stack.enter_context(self._evaluator)
        self.workers: int = int(self._evaluator.num_workers)
        self._running: dict[tuple[int, int], tuple[int, float]] = {}
        self._free = list(range(self.workers))

    def submit(self, task: TrialTask) -> None:
        """Send the task to a worker of the cluster."""
        self._running[task.trial, task.stage] = (self._free.pop(0), self.now())
        self._evaluator.submit([{"task": pickle.dumps(task).hex()}])

    def wait(self, timeout: float | None) -> list[Outcome]:
        """Return the finished outcomes, waiting for the first one; `timeout` is ignored.

        Raises:
            BackendError: a worker of the cluster was lost.
        """
        if not self._running:
            return []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                jobs = self._evaluator.gather("BATCH", size=1)
            except Exception as error:
                raise BackendError(
                    f"a worker of the cluster was lost ({type(error).__name__}: {error})",
                    fix="continue with --resume, which issues its trial again",
                ) from None
        return [self._outcome(job) for job in jobs]

    def _outcome(self, job: Any) -> Outcome:
        task = pickle.loads(bytes.fromhex(job.args["task"]))
        try:
            outcome = pickle.loads(bytes.fromhex(job.output))
        except (TypeError, ValueError, pickle.UnpicklingError):
            outcome = Outcome(task, failure="worker died", error=str(job.output)[:2000])
        outcome.worker, outcome.started = self._running.pop((task.trial, task.stage))
        outcome.finished = self.now()
        self._free.append(outcome.worker)
        return outcome

    def close(self) -> None:
        """Disconnect from the cluster; Ray then ends the trials, MPI waits for them."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._stack.close()


def run_remotely(job: Any, evaluate: bytes, limits: Limits, paths: list[str]) -> str:
    """Run the task in DeepHyper's `job` on the worker's node; return the outcome, pickled as hex.

    Args:
        job: of DeepHyper, with the pickled task.
        evaluate: pickled evaluation.
        limits: of the trial.
        paths: import paths of the manager, added to those of this process.
    """
    sys.path += [path for path in paths if path not in sys.path]
    task = pickle.loads(bytes.fromhex(job.parameters["task"]))
    try:
        outcome = _run(task, evaluate, limits)
    except Exception:
        outcome = Outcome(task, failure="worker died", error=traceback.format_exc())
    return pickle.dumps(outcome).hex()


def _run(task: TrialTask, evaluate: bytes, limits: Limits) -> Outcome:
    """Run a task in a child process, so that a crash does not end the cluster's worker."""
    key = evaluate, limits
    if key not in _processes:
        _processes[key] = Processes(pickle.loads(evaluate), 1, limits=limits)
        atexit.register(_processes[key].close)
    process = _processes[key]
    process.submit(task)
    while not (outcomes := process.wait(1.0)):
        pass
    return outcomes[0]


def _create(method: str, settings: dict[str, Any]) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from deephyper.evaluator import Evaluator as DeepHyper
            from deephyper.evaluator.storage import MemoryStorage

            if method == "mpi":
                # The default storage shares 100 MB windows between ranks, on which MPICH 5
                # aborts; only the manager reads the storage.
                settings = {**settings, "storage": MemoryStorage()}
            return DeepHyper.create(run_remotely, method=_NAMES[method], method_kwargs=settings)
    except ImportError as error:
        there = importlib.util.find_spec("deephyper") is not None
        package, extra = _PACKAGES.get(method if there else "", ("deephyper", "search"))
        raise missing_extra(package, extra, f"the evaluator `{method}` ({error})") from None
    except (RuntimeError, ConnectionError, OSError) as error:
        raise BackendError(
            f"the evaluator `{method}` does not start ({error})",
            fix="ray: RAY_ADDRESS=HOST:PORT of a running cluster; mpi: mpirun -n N, N > 1",
        ) from None


def _ray_settings(workers: int, gpus: int) -> dict[str, Any]:
    address = os.environ.get("RAY_ADDRESS")
    settings: dict[str, Any] = {"num_gpus_per_task": gpus}
    if address:
        return {**settings, "address": address}
    return {**settings, "num_cpus": workers}


@contextlib.contextmanager
def _ray_session() -> Iterator[None]:
    """Disconnect from Ray at the end, unless the caller had connected before."""
    if importlib.util.find_spec("ray") is None:
        yield
        return
    import ray

    connected = ray.is_initialized()
    yield
    if not connected:
        ray.shutdown()


@contextlib.contextmanager
def mpi_ranks() -> Iterator[bool]:
    """Yield True on rank 0, the manager; on other ranks run trials until it ends, then yield False.

    The trainer treats every rank as a single process, regardless of Slurm's variables.

    Raises:
        BackendError: mpi4py is missing.
        ConfigError: there is only one rank.
    """
    try:
        import mpi4py

        mpi4py.rc.initialize, mpi4py.rc.finalize = False, True
        from mpi4py import MPI
    except ImportError as error:
        raise missing_extra("mpi4py", "mpi", f"the evaluator `mpi` ({error})") from None
    if not MPI.Is_initialized():
        MPI.Init_thread()
    if MPI.COMM_WORLD.Get_size() < 2:
        raise ConfigError("one MPI rank: no rank is left for trials", fix="mpirun -n N, N > 1")
    os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0"}
    if MPI.COMM_WORLD.Get_rank() == 0:
        yield True
        return
    # The run function is sent with each task; this one is never called.
    DeepHyperEvaluator(InProcess, "mpi", 1).close()
    yield False


class RayConfig(EvaluatorConfig):
    """Workers of a Ray cluster, through DeepHyper; with `gpus`, one GPU per trial."""

    requires: ClassVar[tuple[str, ...]] = ("deephyper", "ray")
    reads: ClassVar[frozenset[str]] = frozenset(
        {"workers", "gpus", "trial_seconds", "trial_memory"}
    )

    name: Literal["ray"] = "ray"

    def build(self, evaluate: Evaluate, resources: Resources) -> DeepHyperEvaluator:
        """Return the evaluator, connected to the cluster."""
        return DeepHyperEvaluator(
            evaluate,
            "ray",
            resources.workers,
            limits=resources.limits,
            gpus_per_trial=1 if resources.gpus else 0,
        )


class MpiConfig(EvaluatorConfig):
    """All MPI ranks except the first as workers, through DeepHyper."""

    requires: ClassVar[tuple[str, ...]] = ("deephyper", "mpi4py")
    reads: ClassVar[frozenset[str]] = frozenset({"trial_seconds", "trial_memory"})

    name: Literal["mpi"] = "mpi"

    def build(self, evaluate: Evaluate, resources: Resources) -> DeepHyperEvaluator:
        """Return the evaluator, connected to the other ranks."""
        return DeepHyperEvaluator(evaluate, "mpi", resources.workers, limits=resources.limits)

    def session(self) -> AbstractContextManager[bool]:
        """Return the context in which the other ranks run trials."""
        return mpi_ranks()
