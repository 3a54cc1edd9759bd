"""The evaluators of clusters keep their contract; `make test-peers` has Ray and MPI."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("deephyper")

from scitoolkit.search.evaluators import evaluators
from scitoolkit.testing import EvaluatorContract


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
