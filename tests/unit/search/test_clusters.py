from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import search_cases as cases

pytest.importorskip("deephyper")

from scitoolkit.search import DeepHyperEvaluator, Limits, RandomSearch, Search

KINDS = {"raises": "raised", "dies": "worker died", "nan": "not finite", "fine": ""}


def failures(method: str, workers: int = 2) -> dict[str, str]:
    """Run a trial of every kind through an evaluator of DeepHyper."""
    space = {"kind": list(KINDS), "x": [1.0]}
    evaluator = DeepHyperEvaluator(cases.misbehave, method, workers, limits=Limits(seconds=60.0))
    search = Search(space, cases.misbehave, strategy=RandomSearch())
    history = search.run(trials=4, workers=evaluator)
    return {t.configuration["kind"]: t.failure for t in history.trials.values()}


@pytest.mark.slow
@pytest.mark.multiproc
def test_ray_runs_trials_and_survives_their_crashes():
    pytest.importorskip("ray")
    assert _in_a_process("ray") == KINDS


@pytest.mark.slow
@pytest.mark.multiproc
def test_mpi_runs_trials_on_all_ranks_but_the_first():
    from mpi_launcher import require_mpiexec  # not of the processes that run this file

    assert _in_a_process("mpi", require_mpiexec(), "-n", "2") == KINDS


def _in_a_process(method: str, *launcher: str) -> dict[str, str]:
    import ast

    done = subprocess.run(
        [*launcher, sys.executable, __file__, method], capture_output=True, text=True, timeout=300,
        cwd=Path(__file__).parent,
        env={**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return ast.literal_eval(done.stdout.strip().splitlines()[-1])


if __name__ == "__main__":
    if sys.argv[1] == "mpi":
        from scitoolkit.search.evaluators.deephyper import mpi_ranks

        with mpi_ranks() as manages:
            if manages:
                print(failures("mpi"))
    else:
        print(failures(sys.argv[1]))
