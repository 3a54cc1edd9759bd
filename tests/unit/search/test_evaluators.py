"""The evaluators of this machine keep their contract; see `test_clusters.py` for the others."""

from __future__ import annotations

import multiprocessing

import pytest
import search_cases as cases

from scitoolkit.search.evaluators import evaluators
from scitoolkit.search.evaluators.processes import Processes
from scitoolkit.search.trial import Outcome, TrialTask
from scitoolkit.testing import EvaluatorContract
from scitoolkit.testing.trials import running_pids, waited


class TestSerial(EvaluatorContract):
    @pytest.fixture
    def evaluator(self):
        return evaluators.get("serial")()


@pytest.mark.multiproc
class TestProcesses(EvaluatorContract):
    @pytest.fixture
    def evaluator(self):
        return evaluators.get("processes")()


@pytest.mark.multiproc
def test_a_result_sent_just_before_a_worker_ends_is_not_lost(monkeypatch):
    evaluator = Processes(cases.act, 1)
    worker = evaluator._pool[0]
    try:
        while not worker.ready:
            evaluator.wait(1.0)
        worker.kill()
        ours, theirs = multiprocessing.Pipe()
        task = TrialTask(0, 0, {}, 0)
        worker.task, worker.pipe, worker.process = task, ours, _Ending(theirs, task)
        theirs.send(("epoch", {"loss": 1.0}))
        monkeypatch.setattr(evaluator, "_replace", lambda worker: None)
        (outcome,) = evaluator.wait(1.0)
        assert (outcome.failure, outcome.metrics) == ("", {"objective": 2.0})
        assert worker.epochs == [{"loss": 1.0}]
    finally:
        worker.pipe.close()


class _Ending:
    """Process that sends its result after the pipe was read, and has ended when it is asked."""

    exitcode = -9

    def __init__(self, pipe, task):
        self.pipe, self.task, self.sentinel = pipe, task, pipe.fileno()

    def is_alive(self):
        self.pipe.send(("done", Outcome(self.task, {"objective": 2.0})))
        self.pipe.close()
        return False


@pytest.mark.multiproc
def test_a_killed_search_leaves_nothing_running(tmp_path):
    context = multiprocessing.get_context("spawn")
    manager = context.Process(target=cases.hangs_in_a_worker, args=(str(tmp_path),))
    manager.start()
    assert waited((tmp_path / "pids").exists)
    manager.kill()
    manager.join()
    assert waited(lambda: not running_pids(tmp_path))
