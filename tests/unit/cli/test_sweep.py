"""`run --multirun`: one run for each combination of values, a table and a page."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scitoolkit.cli import sweep
from scitoolkit.cli.main import run_cli
from scitoolkit.core.sweep import alternatives, combinations, swept


@pytest.mark.parametrize(
    ("setting", "values"),
    [
        ("seed=1,2,3", ["1", "2", "3"]),
        ("lr=1e-3, 3e-3", ["1e-3", "3e-3"]),
        ("model=unet,{name: fno, modes: [8, 8]}", ["unet", "{name: fno, modes: [8, 8]}"]),
        ("widths=[8,16],[32,64]", ["[8,16]", "[32,64]"]),
        ("equation=a(1,2)", ["a(1,2)"]),
        ("title='a,b',c", ["'a,b'", "c"]),
        ("widths=[8,16", ["[8,16"]),
        ("a=1,", ["1,"]),
        ("a=,1", [",1"]),
        ("a=", [""]),
    ],
)
def test_values_are_separated_outside_brackets_and_quotes(setting, values):
    key = setting.partition("=")[0]
    assert alternatives(setting) == [f"{key}={value}" for value in values]


def test_a_removed_key_and_the_order_of_runs():
    assert alternatives("~model.width,height") == ["~model.width,height"]
    runs = combinations(["seed=1,2", "~a", "model=x,y"])
    assert [(r[0], r[2]) for r in runs] == [
        ("seed=1", "model=x"),
        ("seed=1", "model=y"),
        ("seed=2", "model=x"),
        ("seed=2", "model=y"),
    ]
    assert swept(["seed=1,2", "~a", "lr=3", "model=x,y"]) == ["seed", "model"]


@given(st.lists(st.text("ab[]{}()'\",1 ", min_size=1), max_size=4))
def test_any_text_gives_at_least_one_run_with_the_same_keys(values):
    settings = [f"k{i}={value}" for i, value in enumerate(values)]
    runs = combinations(settings)
    assert runs
    assert all(
        [s.partition("=")[0] for s in run] == [f"k{i}" for i in range(len(values))] for run in runs
    )


@pytest.fixture
def job(tmp_path):
    np.save(tmp_path / "in.npy", np.sin(np.linspace(0, 20, 512, dtype="f4")).reshape(8, 8, 8))
    path = tmp_path / "small.yaml"
    path.write_text(
        f"domain: compression\ndata: {{path: in.npy}}\nrun: {{root: {tmp_path / 'runs'}}}\n"
    )
    return path


def test_a_sweep_runs_every_combination(job, tmp_path, capsys):
    settings = ["bound.value=1e-1,1e-2"]
    assert run_cli(["run", str(job), *settings, "--multirun", "--jobs", "2", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    values = []
    for one in said["runs"]:
        config = (tmp_path / one["run"] / "config.yaml").read_text(encoding="utf-8")
        values.append(next(line.split()[1] for line in config.splitlines() if "value:" in line))
    assert [float(value) for value in values] == [0.1, 0.01]
    page = (tmp_path / said["page"]).read_text(encoding="utf-8")
    assert page.count('<a href="') == 2
    assert page.count("<h2>bound.value=") == 2
    assert "2 runs" in page
    assert not list(tmp_path.glob("runs/*/*.log"))


def test_a_failed_run_does_not_stop_the_others(job, tmp_path, monkeypatch, capsys):
    tried = []

    class Failing:
        returncode = 3

        def __init__(self, arguments, **_settings):
            tried.append(arguments[-2])

        def communicate(self):
            return json.dumps({"error": {"message": "no such file"}}), None

    monkeypatch.setattr(sweep.subprocess, "Popen", Failing)
    assert run_cli(["run", str(job), "bound.value=1e-1,1e-2", "--multirun"]) == 1
    assert tried == ["bound.value=1e-1", "bound.value=1e-2"]
    out = capsys.readouterr().out
    assert out.count("no such file (log: ") == 2
    (page,) = tmp_path.glob("runs/*/multirun-*.html")
    assert page.read_text(encoding="utf-8").count("failed: no such file") == 2


def test_errors_of_any_combination_come_before_the_first_run(job, monkeypatch, capsys):
    monkeypatch.setattr(sweep, "_in_processes", lambda *_: pytest.fail("started"))
    assert run_cli(["run", str(job), "bound.value=1e-1,-3", "--multirun"]) == 2
    assert "greater than 0" in capsys.readouterr().err


def test_several_values_without_multirun_name_it(job, capsys):
    assert run_cli(["run", str(job), "bound.value=1e-1,1e-2"]) == 2
    assert "Fix: --multirun, for 2 runs with one value of bound.value" in capsys.readouterr().err
    assert run_cli(["run", str(job), "bound.valu=1e-1,1e-2"]) == 2
    assert "did you mean bound.value?" in capsys.readouterr().err


@pytest.mark.parametrize("option", [["--resume"], ["--dry-run"], ["--nproc", "2"]])
def test_options_of_one_run_are_refused(job, option, capsys):
    assert run_cli(["run", str(job), "bound.value=1e-1,1e-2", "--multirun", *option]) == 2
    assert "--multirun together with" in capsys.readouterr().err


def test_a_task_of_a_job_array_runs_its_combination(monkeypatch):
    settings = ["seed=1,2,3", "lr=5"]
    assert sweep.array_task(settings) is None
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "11")
    monkeypatch.setenv("SLURM_ARRAY_TASK_MIN", "10")
    monkeypatch.setenv("SLURM_ARRAY_TASK_COUNT", "3")
    assert sweep.array_task(settings) == ["seed=2", "lr=5"]
    for name, value in (("SLURM_ARRAY_TASK_COUNT", "2"), ("SLURM_ARRAY_TASK_ID", "13")):
        with monkeypatch.context() as other:
            other.setenv(name, value)
            with pytest.raises(sweep.ConfigError, match="--array=0-2"):
                sweep.array_task(settings)
