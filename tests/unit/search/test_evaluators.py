"""The evaluators of this machine keep their contract; see `test_clusters.py` for the others."""

from __future__ import annotations

import multiprocessing

import pytest
import search_cases as cases

from scitoolkit.search.evaluators import evaluators
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
def test_a_killed_search_leaves_nothing_running(tmp_path):
    context = multiprocessing.get_context("spawn")
    manager = context.Process(target=cases.hangs_in_a_worker, args=(str(tmp_path),))
    manager.start()
    assert waited((tmp_path / "pids").exists)
    manager.kill()
    manager.join()
    assert waited(lambda: not running_pids(tmp_path))
