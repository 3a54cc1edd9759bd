"""Evaluations that worker processes can import."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from scitoolkit.core.errors import Interrupted
from scitoolkit.search import AgingEvolution, Space, chain
from scitoolkit.search.evaluators.processes import Processes
from scitoolkit.search.trial import TrialTask
from scitoolkit.testing.trials import act
from scitoolkit.training.signals import StopSignals

PAPER = Space({"a": chain(5, [0, 16, 32, 48, 64, 80, 96], reach=2)})


def evolution():
    return AgingEvolution(population=20, tournament_size=5)


def distance(configuration, trial):
    """A smooth landscape over the space of the paper; the seed takes part."""
    nodes, skips = configuration["a"]["nodes"], configuration["a"]["skips"]
    return {"objective": sum(abs(n - 48) for n in nodes) + len(skips), "parameters": sum(nodes)}


def misbehave(configuration, trial):
    kind = configuration["kind"]
    if kind == "raises":
        raise ValueError("as asked")
    if kind == "dies":
        os.kill(os.getpid(), 9)
    if kind == "full disk":
        raise OSError(28, "No space left on device")
    return {"nan": float("nan"), "nothing": None, "text": "good", "fine": configuration["x"]}[kind]


def counts_epochs(configuration, trial):
    """Trains for `budget` epochs, one number a checkpoint; says how many it did itself."""
    saved = trial.directory / "epoch"
    first = int(saved.read_text()) if trial.resumed and saved.exists() else 0
    for epoch in range(first, int(trial.budget or 6)):
        Path(saved).write_text(str(epoch + 1))
        trial.report(epoch + 1, loss=abs(configuration["x"] - 3) / (epoch + 1))
        time.sleep(configuration.get("sleep", 0.0))
    return {"objective": abs(configuration["x"] - 3) / (trial.budget or 6), "first": first}


def says_environment(configuration, trial):
    return {
        "objective": float(os.environ["OMP_NUM_THREADS"]),
        "gpu": float(os.environ.get("CUDA_VISIBLE_DEVICES", "-1")),
    }


def is_signalled(configuration, trial):
    """A training that SIGTERM stops in its first attempt, as the trainer does."""
    if configuration["x"] == 2 and not trial.resumed:
        with StopSignals() as stop:
            os.kill(os.getpid(), signal.SIGTERM)
            raise Interrupted(f"stopped by {stop.received} after step 7")
    return configuration["x"]


def hangs_in_a_worker(folder):
    """Manage one worker, whose trial waits for a child process."""
    evaluator = Processes(act, 1)
    evaluator.submit(TrialTask(0, 0, {"act": "hang"}, 0, None, folder))
    evaluator.wait(None)
