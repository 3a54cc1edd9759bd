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

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = ROOT / "workflows" / "sst_forecast"
QUICK = ("training.epochs=2", "ensemble=1")


def test_run_leaves_everything_a_run_directory_promises(cli, small_sst, tmp_path):
    outcome = cli("run", WORKFLOW, f"data.path={small_sst}", *QUICK, "--json")
    assert outcome.code == 0, outcome.err
    run = tmp_path / outcome.json["run"]
    for name in ("config.yaml", "env.json", "run.log", "metrics.jsonl", "results.json"):
        assert (run / name).stat().st_size > 0, name
    html = (run / "report" / "index.html").read_text()
    assert 'src="http' not in html
    assert list((run / "report").glob("*.png"))
    assert not list(run.rglob("*.tmp"))

    # The resolved config is a valid input, and the run can be used without its workflow.
    assert cli("validate", run / "config.yaml").code == 0
    again = cli("evaluate", run, "--json")
    assert again.code == 0, again.err
    assert again.json["metrics"] == outcome.json["metrics"]
    predicted = cli("predict", run, small_sst, "-o", "forecast.nc")
    assert predicted.code == 0, predicted.err
    with xr.open_dataset(tmp_path / "forecast.nc", engine="h5netcdf") as dataset:
        assert "sst" in dataset
        assert dataset.sst.attrs["units"] == "degC"


def test_the_same_seed_gives_the_same_numbers(cli, small_sst):
    arguments = ("run", WORKFLOW, f"data.path={small_sst}", *QUICK, "--json")
    first, second = cli(*arguments), cli(*arguments)
    assert first.json["metrics"] == second.json["metrics"]


@pytest.mark.multiproc
def test_two_ranks_end_like_one(cli, small_sst):
    arguments = ("run", WORKFLOW, f"data.path={small_sst}", *QUICK, "--json")
    one = cli(*arguments)
    two = cli(*arguments, "training.strategy=ddp", "--nproc", "2")
    assert two.code == 0, two.err
    for name, value in one.json["metrics"].items():
        if isinstance(value, float):
            assert two.json["metrics"][name] == pytest.approx(value, rel=1e-4), name


def test_dry_run_writes_nothing(cli, small_sst, tmp_path):
    outcome = cli("run", WORKFLOW, f"data.path={small_sst}", "--dry-run")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)
    assert not (tmp_path / "runs").exists()


def test_the_shipped_surrogate_works_on_the_shipped_data(cli, tmp_path):
    (data,) = (ROOT / "datasets" / "ersst_v5").glob("*.nc")
    outcome = cli("evaluate", "surrogates/sst_forecast", "--data", data, "--json")
    assert outcome.code == 0, outcome.err
    card = json.loads((ROOT / "surrogates" / "sst_forecast" / "metrics.json").read_text())
    for name, value in outcome.json["metrics"].items():
        if isinstance(value, float) and name in card:
            assert value == pytest.approx(card[name], rel=1e-3), name


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


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 130), (signal.SIGKILL, -9)])
def test_a_stopped_run_resumes_to_the_same_numbers(cli, small_sst, tmp_path, number, code):
    settings = ["training.epochs=40", "training.early_stopping=null", "ensemble=1"]
    settings += ["training.checkpoint.every_steps=3", f"data.path={small_sst}"]
    whole = cli("run", WORKFLOW, *settings, "run.root=whole", "--json")
    assert whole.code == 0, whole.err

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
        for root in ("whole", "runs")
        for path in tmp_path.glob(f"{root}/*/*/model/weights.safetensors")
    ]
    assert weights[0] == weights[1]
