"""Faults of the machine and signals: trials are interrupted and go on."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time

import pytest
import search_cases as cases

from scitoolkit.core.errors import Interrupted, ScitoolkitError
from scitoolkit.core.files import disk_error
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.search import (
    RandomSearch,
    Search,
    integer,
    load_history,
    objective,
)
from scitoolkit.search.history import same_history
from scitoolkit.search.trial import TrialTask
from scitoolkit.search.trial_log import FILE_NAME
from scitoolkit.search.worker import run_task
from scitoolkit.training import launch
from scitoolkit.training.rank_reports import LostRank


def test_a_full_disk_is_waited_for_and_then_said(tmp_path, monkeypatch):
    def no_space(file, data):
        raise OSError(28, "No space left on device")

    search = Search(cases.PAPER, cases.distance, directory=tmp_path, disk_patience=0.2)
    search.run(trials=5)
    before = (tmp_path / FILE_NAME).read_bytes()
    monkeypatch.setattr("scitoolkit.search.trial_log._write_all", no_space)
    again = Search(cases.PAPER, cases.distance, directory=tmp_path, disk_patience=0.2)
    with pytest.raises(ScitoolkitError, match="No space left"):
        again.run(trials=8, resume=True)
    assert (tmp_path / FILE_NAME).read_bytes() == before
    monkeypatch.undo()
    last = Search(cases.PAPER, cases.distance, directory=tmp_path)
    assert len(last.run(trials=8, resume=True).done) == 8


def test_a_signal_stops_the_search_and_resume_completes_it(tmp_path):
    def slow(configuration):
        time.sleep(0.01)
        return cases.distance(configuration, None)

    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM))
    timer.start()
    with pytest.raises(Interrupted, match="SIGTERM"):
        Search(cases.PAPER, slow, directory=tmp_path).run(trials=10_000)
    done = len(load_history(tmp_path).done)
    history = Search(cases.PAPER, slow, directory=tmp_path).run(trials=done + 5, resume=True)
    assert len(history.done) == done + 5
    assert history.duplicates() == 0


@pytest.mark.parametrize("workers", [1, 2])
def test_a_signal_that_a_training_handles_stops_the_search_and_its_trial_resumes(tmp_path, workers):
    def search():
        strategy = RandomSearch()
        return Search(
            {"x": [0, 1, 2, 3, 4]}, cases.is_signalled, directory=tmp_path, strategy=strategy
        )

    with pytest.raises(Interrupted, match=r"a signal to a trial.*--resume"):
        search().run(trials=5, workers=workers)
    history = load_history(tmp_path)
    assert history.num_failed == 0
    assert 2 in {trial.configuration["x"] for trial in history.running}
    resumed = search().run(trials=5, workers=workers, resume=True)
    assert (len(resumed.done), resumed.num_failed, resumed.interrupted) == (5, 0, [])


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "disk"),
        (RuntimeError("unable to open shared memory object: Too many open files"), "machine"),
        (RuntimeError("out of memory"), "memory"),
        (Interrupted("stopped by SIGTERM after step 7"), "interrupted"),
        (KeyboardInterrupt(), "interrupted"),
        (ValueError("negative"), "raised"),
        (LostRank("rank 1 was lost"), "worker died"),
    ],
)
def test_a_failure_of_one_of_several_ranks_keeps_its_kind(tmp_path, monkeypatch, error, failure):
    monkeypatch.setattr(launch, "launch", lambda *_, **__: objective.rank_exit_code(error))

    def evaluate(configuration):
        return objective._train_together(RunDirectory(tmp_path), 2, False)

    outcome = run_task(evaluate, TrialTask(0, 0, {}, 0))
    assert outcome.failure == failure


@pytest.mark.parametrize("code", ["EMFILE", "EROFS", "EIO", "ENOSPC"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_faults_of_the_machine_interrupt_trials_and_resume_evaluates_them(tmp_path, code, wrapped):
    broken = {3, 5}

    def evaluate(configuration):
        if configuration["x"] not in broken:
            return configuration["x"]
        error = OSError(getattr(errno, code), os.strerror(getattr(errno, code)))
        raise disk_error(error, tmp_path) from None if wrapped else error

    def search():
        return Search(
            {"x": list(range(8))}, evaluate, directory=tmp_path, strategy=cases.evolution()
        )

    history = search().run(trials=8)
    assert {t.configuration["x"] for t in history.interrupted} == broken
    assert (history.num_done, history.num_failed) == (6, 0)
    assert same_history(load_history(tmp_path), history)
    broken.clear()
    resumed = search().run(trials=8, resume=True)
    assert (len(resumed.done), resumed.num_failed, resumed.interrupted) == (8, 0, [])
    assert same_history(load_history(tmp_path), resumed)


def test_a_passing_fault_of_the_machine_is_retried_in_the_same_session():
    left = [2]

    def evaluate(configuration):
        if configuration["x"] < 2 and left[0]:
            left[0] -= 1
            raise RuntimeError("unable to open shared memory object: Too many open files (24)")
        return configuration["x"]

    history = Search({"x": [0, 1, 2, 3]}, evaluate, strategy=RandomSearch()).run(trials=4)
    assert (len(history.done), history.interrupted) == (4, [])


def test_a_lasting_fault_of_the_machine_stops_the_search_without_a_failed_trial(tmp_path):
    read_only = [True]

    def evaluate(configuration):
        if read_only[0]:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS))
        return configuration["x"]

    def search():
        return Search({"x": integer(0, 99)}, evaluate, directory=tmp_path, strategy=RandomSearch())

    with pytest.raises(ScitoolkitError, match=r"10 trials in a row.*Read-only file system"):
        search().run(trials=20)
    read_only[0] = False
    history = search().run(trials=20, resume=True)
    assert (len(history.done), history.num_failed) == (20, 0)


def test_a_told_fault_of_the_machine_is_asked_for_again():
    with Search({"x": [0]}, None, strategy=RandomSearch()).asking() as asking:
        trial = asking.tell(asking.ask(), OSError(errno.EMFILE, "Too many open files"))
        assert (trial.status, trial.failure) == ("running", "machine")
        assert asking.tell(asking.ask(), 0.5).status == "done"
