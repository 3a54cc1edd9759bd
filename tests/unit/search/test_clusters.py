"""The evaluators of clusters keep their contract; `make test-peers` has Ray and MPI."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from concurrent.futures import Executor, Future
from pathlib import Path

import pytest

from scitoolkit.core.cluster import Pool
from scitoolkit.core.errors import BackendError
from scitoolkit.search.evaluators import evaluators
from scitoolkit.search.evaluators.cluster import ClusterEvaluator
from scitoolkit.search.trial import Task
from scitoolkit.testing import EvaluatorContract
from scitoolkit.testing.trials import act


class OneWorker(Executor):
    """A cluster of one worker, which is this process; the trial with number 3 loses it."""

    def submit(self, fn, /, task, *given):
        future = Future()
        try:
            if task.trial == 3:
                raise ConnectionError("the node went down")
            future.set_result(fn(task, *given))
        except ConnectionError as error:
            future.set_exception(error)
        return future


@pytest.mark.multiproc
def test_trials_of_a_cluster_fail_alone_unless_its_worker_is_lost(tmp_path):
    running = ClusterEvaluator(act, Pool(OneWorker(), 1))
    ended = []
    for number, name in enumerate(("answer", "die", "raise")):
        configuration = {"act": name, "failure": "disk"}
        running.submit(Task(number, 0, configuration, 7, None, str(tmp_path / str(number)), False))
        ended += running.wait(1.0)
        assert running.wait(0.0) == []
    assert [outcome.failure for outcome in ended] == ["", "worker died", "disk"]
    assert [outcome.task.trial for outcome in ended] == [0, 1, 2]
    assert all(outcome.worker == 0 for outcome in ended)
    assert ended[0].metrics["seed"] == 7
    running.submit(Task(3, 0, {"act": "answer"}, 7, None, str(tmp_path / "3"), False))
    with pytest.raises(BackendError, match=r"worker of the cluster was lost.*node went down"):
        running.wait(None)
    running.close()


@pytest.mark.slow
@pytest.mark.multiproc
class TestRay(EvaluatorContract):
    @pytest.fixture
    def evaluator(self):
        pytest.importorskip("ray")
        return evaluators.get("ray")()


class OnRanks(EvaluatorContract):
    """Contract of `mpi` on rank 0; the other ranks serve one evaluator after another."""

    @pytest.fixture
    def evaluator(self):
        return evaluators.get("mpi")()

    @contextlib.contextmanager
    def started(self, config, **given):
        _next_evaluator(True)
        with super().started(config, **given) as running:
            yield running


@pytest.mark.slow
@pytest.mark.multiproc
def test_mpi_runs_trials_on_all_ranks_but_the_first():
    from mpi_launcher import require_mpiexec  # not of the processes that run this file

    done = subprocess.run(
        [require_mpiexec(), "-n", "3", sys.executable, __file__],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=Path(__file__).parent,
        env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert " passed" in done.stdout


def _next_evaluator(wanted: bool) -> bool:
    """Tell the other ranks whether rank 0 starts another evaluator."""
    from mpi4py import MPI

    return MPI.COMM_WORLD.bcast(wanted)


def _on_rank() -> int:
    from mpi4py import MPI

    if MPI.COMM_WORLD.Get_rank() == 0:
        # MPI cannot end a trial of another rank: `mpiexec` does, or the end of the job.
        chosen = ["-o", "python_classes=OnRanks", "-k", "OnRanks and not stopped"]
        code = pytest.main(["-q", "-p", "no:cacheprovider", *chosen, __file__])
        _next_evaluator(False)
        return int(code)
    while _next_evaluator(False):
        with evaluators.get("mpi")().session():
            pass
    return 0


if __name__ == "__main__":
    sys.exit(_on_rank())
