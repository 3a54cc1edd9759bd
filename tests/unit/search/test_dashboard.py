"""A search's log as a study of Optuna: what it holds, and that it follows a running search."""

from __future__ import annotations

import json
import math

import pytest

from scitoolkit.cli.main import run_cli
from scitoolkit.core.errors import CheckpointError
from scitoolkit.search import MedianPruning, Objective, Search, Space, chain, choice, integer, real
from scitoolkit.search.dashboard import OptunaCopy
from scitoolkit.search.reports import read_reports, write_report

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


def test_running_trials_move(tmp_path):
    """The epochs of trials that run are shown before they have finished, and not twice."""
    shown = []

    def watched(configuration, trial):
        for epoch in range(1, 4):
            trial.report(epoch, objective=configuration["x"] / epoch)
            copy.update() if shown else None
            study = studies(storage)[tmp_path.name] if shown else None
            if study is not None:
                shown.append((trial.number, epoch, dict(study.trials[-1].intermediate_values)))
        return configuration["x"]

    space = {"x": real(1, 2)}
    Search(space, watched, directory=tmp_path).run(trials=1)
    copy, storage = copied(tmp_path)
    shown.append(None)
    history = Search(space, watched, directory=tmp_path).run(trials=2, resume=True)
    x = history.searched[1].configuration["x"]
    assert shown[1:] == [(1, n, {e: x / e for e in range(1, n + 1)}) for n in (1, 2, 3)]
    copy.update()
    (study,) = studies(storage).values()
    assert study.trials[1].intermediate_values == {e: x / e for e in (1, 2, 3)}
    assert study.trials[1].state.name == "COMPLETE"


def test_the_epochs_of_a_training_are_shown_while_it_runs(tmp_path):
    """A job reports to its search at the end; until then its own log of metrics tells."""
    with search(tmp_path).asking() as asking:
        asked = asking.ask()
        copy, storage = copied(tmp_path)
        folder = tmp_path / "trials" / f"{asked.trial:06d}"
        folder.mkdir(parents=True)
        for step, loss in ((10, 0.5), (20, 0.25)):
            row = {"name": "validation/error", "value": loss, "unit": "", "step": step}
            with (folder / "metrics.jsonl").open("a") as file:
                file.write(json.dumps(row) + "\n")
        copy.update()
        (study,) = studies(storage).values()
        assert study.trials[0].intermediate_values == {1: 0.5, 2: 0.25}
        assert study.trials[0].state.name == "RUNNING"
        # A later stage has the reports of the stages before, and continues.
        write_report(folder, {"epoch": 1, "error": 0.5}, first=True)
        with (folder / "metrics.jsonl").open("a") as file:
            row = {"name": "validation/error", "value": 0.125, "unit": "", "step": 30}
            file.write(json.dumps(row) + "\n")
        copy.update()
        (study,) = studies(storage).values()
        assert study.trials[0].intermediate_values == {1: 0.5, 2: 0.25, 3: 0.125}


def test_files_of_an_evaluation_do_not_end_the_dashboard(tmp_path):
    write_report(tmp_path, {"epoch": 1, "loss": 0.5}, first=True)
    write_report(tmp_path, {"epoch": 2, "loss": None}, first=False)
    with (tmp_path / "reports.jsonl").open("a") as file:
        file.write('{"epoch": 3, "lo')  # being written
    (tmp_path / "metrics.jsonl").write_text('{"mine": 1}\n')
    assert read_reports(tmp_path) == [{"epoch": 1, "loss": 0.5}, {"epoch": 2, "loss": None}]
    assert read_reports(tmp_path / "removed") == []


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
