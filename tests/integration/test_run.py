"""The main job, from file to report, through the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import xarray as xr
import yaml
from command_line import run_process

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = ROOT / "workflows" / "sst_forecast"
LONG = (
    "training.epochs=40",
    "training.early_stopping=null",
    "ensemble=1",
    "harmonics=[2]",
    "pod.rank=2",
    "training.checkpoint.every_steps=3",
    # One family: the short runs choose among all.
    "forecaster.name=damped_anomaly_memory",
    "forecaster.folds=1",
)


def test_run_leaves_everything_a_run_directory_promises(
    cli, command, quick_run, small_sst, tmp_path
):
    folder, _, outcome = quick_run
    run = folder / outcome.json["run"]
    for name in ("config.yaml", "env.json", "run.log", "metrics.jsonl", "results.json"):
        assert (run / name).stat().st_size > 0, name
    html = (run / "report" / "index.html").read_text()
    assert 'src="http' not in html
    assert list((run / "report").glob("*.png"))
    assert not list(run.rglob("*.tmp"))

    # The resolved config is a valid input, and the run can be used without its workflow.
    assert command("validate", run / "config.yaml").code == 0
    again = cli("evaluate", run, "--json")
    assert again.code == 0, again.err
    assert again.json["metrics"] == outcome.json["metrics"]
    predicted = command("predict", run, small_sst, "-o", "forecast.nc")
    assert predicted.code == 0, predicted.err
    with xr.open_dataset(tmp_path / "forecast.nc", engine="h5netcdf") as dataset:
        assert "sst" in dataset
        assert dataset.sst.attrs["units"] == "degC"


def test_the_same_seed_gives_the_same_numbers(cli, quick_run):
    _, arguments, first = quick_run
    assert first.json["metrics"] == cli(*arguments).json["metrics"]


def test_resume_with_another_config(command, quick_run):
    folder, arguments, _ = quick_run
    other = (*arguments[:-1], "training.seed=9", f"run.root={folder / 'runs'}", "--resume")
    outcome = command(*other)
    assert outcome.code == 2, outcome.err
    (_,) = [line for line in outcome.err.splitlines() if line.startswith("error: ")]
    assert "Traceback" not in outcome.err
    for word in ("training.seed", "differs from that of the run to resume"):
        assert word in outcome.err


@pytest.mark.multiproc
def test_two_ranks_end_like_one(cli, quick_run):
    _, arguments, one = quick_run
    two = cli(*arguments, "training.strategy=ddp", "--nproc", "2")
    assert two.code == 0, two.err
    for name, value in one.json["metrics"].items():
        if isinstance(value, float):
            assert two.json["metrics"][name] == pytest.approx(value, rel=1e-4), name


def test_dry_run_writes_nothing(command, small_sst, tmp_path):
    outcome = command("run", WORKFLOW, f"data.path={small_sst}", "--dry-run")
    assert outcome.code == 0, outcome.err
    lines = outcome.out.splitlines()
    assert len(lines) > 10
    assert max(map(len, lines)) <= 110
    assert {"variable: sst", "windows:"} <= set(lines)
    as_json = command("run", WORKFLOW, f"data.path={small_sst}", "--dry-run", "--json")
    measured, told = as_json.json, yaml.safe_load(outcome.out)
    for told_as in (measured, told):  # times, which differ between calls
        assert told_as.pop("seconds_per_step") > 0
        told_as.pop("training", None)
    assert measured == told
    assert len(as_json.out.splitlines()) == 1
    assert not (tmp_path / "runs").exists()


def test_the_shipped_surrogate_works_on_the_shipped_data(command):
    (data,) = (ROOT / "datasets" / "ersst_v5").glob("*.nc")
    outcome = command("evaluate", "surrogates/sst_forecast", "--data", data, "--json")
    assert outcome.code == 0, outcome.err
    card = json.loads((ROOT / "surrogates" / "sst_forecast" / "metrics.json").read_text())
    for name, value in outcome.json["metrics"].items():
        if isinstance(value, float) and name in card:
            assert value == pytest.approx(card[name], rel=1e-3), name


@pytest.mark.slow
def test_the_workflow_reaches_its_expected_figures(cli):
    """The whole job on the shipped data, held against the figures that were kept."""
    expected = json.loads((WORKFLOW / "expected.json").read_text())
    outcome = cli("run", WORKFLOW, "--json")
    assert outcome.code == 0, outcome.err
    found = outcome.json["metrics"]
    for name, value in expected["metrics"].items():
        assert found[name] == pytest.approx(value, rel=expected["relative_tolerance"]), name
    # At no lead worse than the damped anomaly, the best of the simple forecasts.
    assert found["largest_ratio_to_damped_anomaly"] <= 1.0


@pytest.fixture(scope="module")
def whole_run(small_sst, tmp_path_factory):
    """Return the folder and outcome of a run that nothing stopped."""
    folder = tmp_path_factory.mktemp("whole")
    whole = run_process(folder, "run", WORKFLOW, *LONG, f"data.path={small_sst}", "--json")
    assert whole.code == 0, whole.err
    return folder, whole


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 130), (signal.SIGKILL, -9)])
def test_a_stopped_run_resumes_to_the_same_numbers(
    cli, whole_run, small_sst, tmp_path, number, code
):
    settings = [*LONG, f"data.path={small_sst}"]
    whole_folder, whole = whole_run

    command = [sys.executable, "-m", "scitoolkit", "run", str(WORKFLOW), *settings]
    with (tmp_path / "err").open("w") as err:
        process = subprocess.Popen(
            command, cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1"}, stderr=err
        )
        while process.poll() is None and not list(tmp_path.glob("runs/*/*/checkpoints/step-*")):
            time.sleep(0.005)
        process.send_signal(number)
        assert process.wait(60) == code, (tmp_path / "err").read_text()
    assert not list(tmp_path.glob("runs/*/*/results.json"))

    resumed = cli("run", WORKFLOW, *settings, "--resume", "--json")
    assert resumed.code == 0, resumed.err
    assert "continuing after step" in resumed.err
    assert len(list(tmp_path.glob("runs/*/*"))) == 1
    assert resumed.json["metrics"] == whole.json["metrics"]
    weights = [
        path.read_bytes()
        for folder in (whole_folder, tmp_path)
        for path in folder.glob("runs/*/*/model/weights.safetensors")
    ]
    assert weights[0] == weights[1]
