"""Contract suite of evaluators, to inherit in tests.

Example:
    class TestMyEvaluator(EvaluatorContract):
        @pytest.fixture
        def evaluator(self):
            return MyEvaluatorConfig()
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from scitoolkit.search.evaluators import Evaluator, EvaluatorConfig, Limits, Resources, evaluators
from scitoolkit.search.trial import Outcome, TrialTask
from scitoolkit.testing.member import check_registered, check_settings
from scitoolkit.testing.trials import PATIENCE, act, running_pids, waited

BUDGET_KEYS = {"workers", "threads", "gpus", "trial_seconds", "trial_memory"}


class EvaluatorContract:
    """Contract suite of evaluators; override the fixture `evaluator`."""

    @pytest.fixture
    def evaluator(self) -> EvaluatorConfig:
        """Return the configuration of the evaluator under test."""
        raise NotImplementedError("override the fixture `evaluator`")

    @contextlib.contextmanager
    def started(self, config: EvaluatorConfig, **options: Any) -> Iterator[Evaluator]:
        """Yield a started evaluator with 2 workers, or with as many as it has; close it."""
        resources: dict[str, Any] = {"workers": 2, **options}
        if "workers" not in config.reads:
            del resources["workers"]
        with config.session():
            running = config.build(act, Resources(**resources))
            try:
                yield running
            finally:
                running.close()

    def test_registered_under_its_name(self, evaluator: EvaluatorConfig) -> None:
        """The registry returns this class; it has a summary and reads known keys of `budget`."""
        check_registered(evaluators, evaluator)
        check_settings(evaluator)
        assert evaluator.reads <= BUDGET_KEYS

    def test_every_task_has_one_outcome(self, evaluator: EvaluatorConfig, tmp_path: Path) -> None:
        """Outcomes have their task, metrics, epochs, worker and times on the evaluator's clock."""
        options = {"threads": 1} if "threads" in evaluator.reads else {}
        with self.started(evaluator, **options) as running:
            began = running.now()
            tasks = [
                _task(tmp_path, k, "answer", stage=k % 2, pause=0.05 * (3 - k % 3))
                for k in range(2 * running.workers + 1)
            ]
            outcomes = _outcomes(running, tasks)
            ended = running.now()
        for task, outcome in zip(tasks, outcomes, strict=True):
            assert (outcome.task, outcome.failure) == (task, "")
            assert outcome.epochs == [{"epoch": 1, "loss": 0.5}]
            expected = {
                "seed": task.seed,
                "budget": task.budget,
                "number": task.trial,
                "resumed": task.resumed,
                **options,
            }
            assert expected.items() <= outcome.metrics.items()
            assert (Path(str(task.directory)) / "answered").exists()
            assert 0 <= outcome.worker < running.workers
            assert began <= outcome.started <= outcome.finished <= ended

    def test_failed_trials_are_outcomes(self, evaluator: EvaluatorConfig, tmp_path: Path) -> None:
        """Every error has its kind and a message, and the next trials run."""
        raised = ["raised", "memory", "disk", "machine", "interrupted"]
        kinds = {"nan": "not finite", "nothing": "no result", "answer": ""}
        tasks = [_task(tmp_path, k, "raise", failure=kind) for k, kind in enumerate(raised)]
        tasks += [_task(tmp_path, len(raised) + k, kind) for k, kind in enumerate(kinds)]
        with self.started(evaluator) as running:
            outcomes = _outcomes(running, tasks)
        assert [outcome.failure for outcome in outcomes] == [*raised, *kinds.values()]
        for outcome in outcomes[:-1]:
            assert outcome.error.strip()
            assert not outcome.metrics or outcome.failure == "not finite"
            assert outcome.epochs == [{"epoch": 1, "loss": 0.5}]
        assert all("as asked" in outcome.error for outcome in outcomes[: len(raised)])

    def test_dead_workers_are_replaced(self, evaluator: EvaluatorConfig, tmp_path: Path) -> None:
        """A worker that is killed fails its own trial only, unless it is this process."""
        with self.started(evaluator) as running:
            (first,) = _outcomes(running, [_task(tmp_path, 0, "answer")])
            if first.metrics["pid"] == os.getpid():
                return
            acts = ["die"] * (running.workers + 1) + ["answer"] * running.workers
            outcomes = _outcomes(running, [_task(tmp_path, k + 1, a) for k, a in enumerate(acts)])
        for name, outcome in zip(acts, outcomes, strict=True):
            assert outcome.failure == ("worker died" if name == "die" else "")
            assert bool(outcome.error.strip()) == (name == "die")

    def test_limits_stop_one_trial(self, evaluator: EvaluatorConfig, tmp_path: Path) -> None:
        """A trial beyond a limit that the evaluator reads is stopped, and the next one runs."""
        limits = {
            "trial_seconds": ("train", "time limit", Limits(seconds=0.5)),
            "trial_memory": ("grow", "memory", Limits(memory=400 << 20)),
        }
        for number, key in enumerate(limits.keys() & evaluator.reads):
            name, failure, limit = limits[key]
            folder = tmp_path / str(number)
            with self.started(evaluator, limits=limit) as running:
                tasks = [_task(folder, k, a) for k, a in enumerate((name, "answer"))]
                stopped, answered = _outcomes(running, tasks)
            assert (stopped.failure, answered.failure) == (failure, "")
            assert stopped.error.strip()
            assert stopped.epochs

    def test_workers_run_at_the_same_time(self, evaluator: EvaluatorConfig, tmp_path: Path) -> None:
        """As many trials as workers run at a time."""
        with self.started(evaluator, workers=3) as running:
            assert running.workers == 3 or "workers" not in evaluator.reads
            tasks = [
                _task(tmp_path, k, "meet", trials=running.workers) for k in range(running.workers)
            ]
            assert [o.metrics["objective"] for o in _outcomes(running, tasks)] == [1.0] * len(tasks)

    def test_a_stopped_search_leaves_nothing_running(
        self, evaluator: EvaluatorConfig, tmp_path: Path
    ) -> None:
        """`close` in the middle of a trial ends its process and the processes that it started."""
        task = _task(tmp_path, 0, "hang")
        folder = Path(str(task.directory))

        def interrupt(number: int, frame: Any) -> None:
            raise KeyboardInterrupt

        def interrupt_when_started() -> None:
            waited((folder / "pids").exists)
            os.kill(os.getpid(), signal.SIGUSR1)

        before = signal.signal(signal.SIGUSR1, interrupt)
        threading.Thread(target=interrupt_when_started, daemon=True).start()
        try:
            with pytest.raises(KeyboardInterrupt), self.started(evaluator) as running:
                _outcomes(running, [task])
        finally:
            signal.signal(signal.SIGUSR1, before)
        assert waited(lambda: running_pids(folder) <= {os.getpid()})


def _task(folder: Path, number: int, name: str, stage: int = 0, **values: Any) -> TrialTask:
    """Return a task with a folder; the other fields differ between tasks."""
    return TrialTask(
        number,
        stage,
        {"act": name, **values},
        17 + number,
        2.0 + number,
        str(folder / f"trial-{number}"),
        stage > 0,
    )


def _outcomes(running: Evaluator, tasks: Sequence[TrialTask]) -> list[Outcome]:
    """Run the tasks as the manager does; return one outcome of each, in their order."""
    started, waiting = time.monotonic(), list(tasks)
    outcomes: list[Outcome] = []
    while len(outcomes) < len(tasks):
        while waiting and len(tasks) - len(waiting) - len(outcomes) < running.workers:
            running.submit(waiting.pop(0))
        outcomes += running.wait(None if running.blocking else 1.0)
        assert time.monotonic() < started + 2 * PATIENCE, f"only {outcomes} of {tasks}"
    assert running.wait(0.0) == []
    return sorted(outcomes, key=lambda outcome: outcome.task.trial)
