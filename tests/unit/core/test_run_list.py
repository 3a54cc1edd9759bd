"""Runs are listed with their state, compared by settings and metrics, and cleaned only if safe."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from scitoolkit.core import run_directory
from scitoolkit.core.config import Config
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.job_config import JobConfig, RunConfig
from scitoolkit.core.results import Results, Verdict
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.core.run_list import clean_runs, compare_runs, find_run, list_runs
from scitoolkit.core.runs import open_run


class Training(Config):
    lr: float = 0.1
    epochs: int = 5


class DemoConfig(JobConfig):
    domain: str = "demo"
    training: Training = Training()


@pytest.fixture
def make(tmp_path):
    """Return a function that makes a run whose files are a day old unless `recent`."""
    count = iter(range(100))

    def run(workflow="demo", *, recent=False, checkpoint=False, results=False, lr=0.1):
        config = DemoConfig(workflow=workflow, training=Training(lr=lr))
        made = RunDirectory.create(tmp_path, workflow, config)
        path = made.path.rename(made.path.with_name(f"202601{next(count) + 10}T000000Z-ab"))
        made = RunDirectory(path)
        if checkpoint:
            (made.checkpoints / "step-1").mkdir()
            (made.checkpoints / "step-1" / "state").write_bytes(b"x" * 100)
        if results:
            verdict = Verdict(quantity="RMSE", ours=lr, rival=1.0, rival_name="mean", unit="K")
            metrics = {"rmse": lr, f"of_{workflow}": 1}
            Results(title="", verdict=verdict, metrics=metrics, units={"rmse": "K"}).write(path)
        if not recent:
            old = time.time() - 86400
            for file in path.rglob("*"):
                os.utime(file, (old, old))
        return path

    return run


def names(removals) -> set[Path]:
    return {removal.path for removal in removals}


def test_runs_are_listed_the_newest_first_with_status_and_verdict(make, tmp_path):
    empty, stopped = make(), make(checkpoint=True)
    evaluated = make("other", checkpoint=True, results=True)
    found = list_runs(tmp_path)
    assert [run.path for run in found] == [evaluated, stopped, empty]
    assert [run.status for run in found] == ["evaluated", "stopped", "empty"]
    assert found[0].verdict == "RMSE: 0.1 K, a factor of 10 below mean (1.0 K)."
    assert found[0].started == "2026-01-12T00:00:00Z"
    assert found[0].bytes == sum(p.stat().st_size for p in evaluated.rglob("*") if p.is_file())
    assert [run.path for run in list_runs(tmp_path, "other")] == [evaluated]
    with pytest.raises(ConfigError, match=r"'othr'.*Fix: other"):
        list_runs(tmp_path, "othr")


def test_damaged_results_and_foreign_folders_do_not_stop_a_list(make, tmp_path):
    damaged = make(results=True)
    (damaged / "results.json").write_text("{", encoding="utf-8")
    (tmp_path / "notes").mkdir()
    (tmp_path / "demo" / "model").mkdir()  # a model's configuration is no run
    (tmp_path / "demo" / "model" / "config.yaml").write_text("domain: demo\n", encoding="utf-8")
    (found,) = list_runs(tmp_path)
    assert found.path == damaged
    assert "not a results file" in found.problem


def test_a_folder_inside_a_run_is_refused(make):
    path = make(checkpoint=True)
    with pytest.raises(ConfigError, match="inside a run"):
        clean_runs(path, keep=0, remove=True)
    with pytest.raises(ConfigError, match="inside a run"):
        list_runs(path / "checkpoints")


def test_a_run_is_found_by_path_name_beginning_and_workflow(make, tmp_path):
    first, second = make(), make()
    assert find_run(first, tmp_path) == first
    assert find_run(first.name, tmp_path) == first
    assert find_run("20260111", tmp_path) == second
    assert find_run("demo", tmp_path) == second
    with pytest.raises(ConfigError, match=r"2 runs begin with '202601'"):
        find_run("202601", tmp_path)
    with pytest.raises(ConfigError, match="no run 'nothing'"):
        find_run("nothing", tmp_path)


def test_a_comparison_has_differing_settings_and_all_metrics(make, tmp_path):
    runs = [make(results=True, lr=0.1), make("other", results=True, lr=0.2)]
    found = compare_runs(runs)
    assert found.settings == {"workflow": ["demo", "other"], "training.lr": [0.1, 0.2]}
    assert found.metrics == {"rmse": [0.1, 0.2], "of_demo": [1, None], "of_other": [None, 1]}
    assert found.units == {"rmse": "K"}
    with pytest.raises(ConfigError, match="two or more"):
        compare_runs(runs[:1])
    with pytest.raises(DataError, match="scitoolkit evaluate"):
        compare_runs([runs[0], make()])


def test_only_empty_runs_are_cleaned_unless_more_is_asked_for(make, tmp_path):
    empty = make()
    for _ in range(3):
        make(checkpoint=True, results=True)
    assert names(clean_runs(tmp_path)) == {empty}
    assert empty.exists(), "without remove=True nothing is removed"
    assert names(clean_runs(tmp_path, remove=True)) == {empty}
    assert len(list_runs(tmp_path)) == 3


def test_old_runs_are_removed_by_workflow(make, tmp_path):
    old, new = make(results=True), make(results=True)
    other = make("other", checkpoint=True)
    assert names(clean_runs(tmp_path, keep=1, remove=True)) == {old}
    assert {run.path for run in list_runs(tmp_path)} == {new, other}
    assert names(clean_runs(tmp_path, "other", keep=0, remove=True)) == {other}
    with pytest.raises(ConfigError, match="0 or more"):
        clean_runs(tmp_path, keep=-1)


def test_checkpoints_of_evaluated_runs_only(make, tmp_path):
    evaluated, stopped = make(checkpoint=True, results=True), make(checkpoint=True)
    (found,) = clean_runs(tmp_path, checkpoints=True, remove=True)
    assert (found.path, found.bytes) == (evaluated / "checkpoints", 100)
    assert list((evaluated / "checkpoints").iterdir()) == []
    assert (stopped / "checkpoints" / "step-1").is_dir()
    assert clean_runs(tmp_path, checkpoints=True) == []


def test_a_run_that_may_be_running_is_kept(make, tmp_path):
    make(recent=True)
    make(recent=True, checkpoint=True)
    resumed = make(checkpoint=True, results=True)
    (resumed / "checkpoints" / "step-2").write_bytes(b"")  # continued after its evaluation
    assert all(run.recent for run in list_runs(tmp_path))
    assert clean_runs(tmp_path, keep=0, checkpoints=True, remove=True) == []


def test_a_run_that_was_just_evaluated_is_not_running(make, tmp_path):
    path = make(recent=True, checkpoint=True)
    Results(title="").write(path)
    assert [run.recent for run in list_runs(tmp_path)] == [False]


def test_symbolic_links_are_not_followed(make, tmp_path):
    elsewhere = make("elsewhere")
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "linked").symlink_to(elsewhere.parent)
    (tmp_path / "root" / "demo").mkdir()
    (tmp_path / "root" / "demo" / elsewhere.name).symlink_to(elsewhere)
    assert clean_runs(tmp_path / "root", keep=0, remove=True) == []
    assert elsewhere.exists()


def test_the_newest_of_many_runs_that_began_in_one_second_is_found(tmp_path, monkeypatch):
    monkeypatch.setattr(run_directory.time, "strftime", lambda *_: "20260101T000000Z")
    config = DemoConfig(workflow="demo", run=RunConfig(root=tmp_path))
    made = [open_run(config, resume=False, state="*").path for _ in range(12)]
    monkeypatch.undo()
    assert [run.path for run in list_runs(tmp_path)] == made[::-1]
    assert find_run("demo", tmp_path) == made[-1]
    assert open_run(config, resume=True, state="checkpoints").path == made[-1]
