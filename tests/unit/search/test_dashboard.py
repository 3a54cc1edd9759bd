"""A search's log as a study of Optuna: what it holds, and that it follows a running search."""

from __future__ import annotations

import math

import pytest

from scitoolkit.cli.main import run_cli
from scitoolkit.core.errors import CheckpointError
from scitoolkit.search import MedianPruning, Objective, Search, Space, chain, choice, integer, real
from scitoolkit.search.dashboard import OptunaCopy

optuna = pytest.importorskip("optuna")

SPACE = {
    "rate": real(1e-4, 1.0, log=True),
    "depth": integer(1, 6),
    "width": integer(2, 64, step=2, log=True, when={"head": ["a"]}),
    "share": real(0, 1, step=0.25),
    "head": choice("a", [1, 2], None, 3.5, True),
    "cells": chain(3, [0, 16], reach=2),
}


def trained(configuration, trial):
    for epoch in range(1, 4):
        trial.report(epoch, loss=configuration["rate"] / epoch)
    if configuration["depth"] == 3:
        raise ValueError("as asked")
    loss = configuration["rate"] + configuration["depth"]
    return {"loss": loss, "accuracy": -loss, "size": 2.0, "other": math.nan}


def search(folder, space=SPACE, **more):
    objectives = ["loss", Objective("accuracy", "max"), Objective("size", limit=9, constraint=True)]
    return Search(space, trained, directory=folder, objectives=objectives, **more)


def copied(folder):
    storage = optuna.storages.InMemoryStorage()
    return OptunaCopy(folder, storage), storage


def studies(storage):
    return {
        s.study_name: optuna.load_study(study_name=s.study_name, storage=storage)
        for s in optuna.get_all_study_summaries(storage)
    }


def test_trials_have_the_values_of_the_log_whatever_the_parameters_are(tmp_path):
    history = search(tmp_path / "run").run(trials=25)
    study = studies(copied(tmp_path / "run")[1])["run"]
    assert [d.name for d in study.directions] == ["MINIMIZE", "MAXIMIZE"]
    assert study.metric_names == ["loss", "accuracy"]
    assert len(study.trials) == 25
    for ours, theirs in zip(history.searched, study.trials, strict=True):
        assert theirs.state.name == {"done": "COMPLETE", "failed": "FAIL"}[ours.status]
        for name in ("rate", "depth", "share", "width"):
            assert theirs.params.get(name) == ours.configuration.get(name)
        assert theirs.user_attrs["trial"] == ours.id
        assert 0 <= theirs.duration.total_seconds() < 60
        assert theirs.intermediate_values[2] == ours.configuration["rate"] / 2
        if ours.status == "done":
            assert theirs.values == [ours.metrics["loss"], ours.metrics["accuracy"]]
            assert theirs.user_attrs["size"] == 2.0
    assert {t.state.name for t in study.trials} == {"COMPLETE", "FAIL"}
    fronts = {t.user_attrs["trial"] for t in study.best_trials}
    assert {t.id for t in history.front()} == fronts


def test_it_follows_a_search_that_runs(tmp_path):
    with search(tmp_path).asking() as asking:
        first, second = asking.ask(), asking.ask()
        copy, storage = copied(tmp_path)
        (study,) = studies(storage).values()
        assert [t.state.name for t in study.trials] == ["RUNNING", "RUNNING"]
        asking.tell(second, {"loss": 2.0, "accuracy": 0.5, "size": 1.0})
        asking.tell(first, ValueError("diverged"))
        asking.ask()
        copy.update()
        copy.update()
        states = [t.state.name for t in study.trials]
        assert states == ["FAIL", "COMPLETE", "RUNNING"]
        assert study.trials[1].values == [2.0, 0.5]
        assert study.trials[1].user_attrs["size"] == 1.0


def test_pruned_trials_are_pruned(tmp_path):
    def epochs(configuration, trial):
        for epoch in range(1, 5):
            trial.report(epoch, objective=configuration["x"] + 1 / epoch)
        return configuration["x"]

    history = Search(
        {"x": real(0, 1)}, epochs, directory=tmp_path, pruning=MedianPruning("objective")
    ).run(trials=20)
    assert history.num_pruned
    (study,) = studies(copied(tmp_path)[1]).values()
    assert sum(t.state.name == "PRUNED" for t in study.trials) == history.num_pruned
    assert all(len(t.intermediate_values) >= 1 for t in study.trials)


def test_a_changed_space_begins_another_study(tmp_path):
    search(tmp_path).run(trials=4)
    copy, storage = copied(tmp_path)
    wider = Space({**SPACE, "depth": integer(1, 9)})
    search(tmp_path, wider).run(trials=6, resume=True)
    copy.update()
    first, second = studies(storage).values()
    assert (len(first.trials), len(second.trials)) == (4, 6)
    assert second.trials[0].distributions["depth"].high == 9


def test_the_command_writes_a_journal_once_and_refuses_what_is_no_search(tmp_path, capsys):
    search(tmp_path / "run").run(trials=5)
    arguments = ["search", "dashboard", str(tmp_path / "run"), "--export", str(tmp_path / "j")]
    assert run_cli(arguments) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "j")
    backend = optuna.storages.journal.JournalFileBackend(str(tmp_path / "j"))
    (study,) = studies(optuna.storages.JournalStorage(backend)).values()
    assert len(study.trials) == 5
    assert run_cli(arguments) == 2
    assert "exists" in capsys.readouterr().err
    with pytest.raises(CheckpointError, match="description of a search"):
        copied(tmp_path)


def test_the_search_command_keeps_its_own_arguments(capsys):
    assert run_cli(["search", "no_such_file.yaml", "--workers", "2", "--dry-run"]) != 0
    assert "no_such_file" in capsys.readouterr().err
