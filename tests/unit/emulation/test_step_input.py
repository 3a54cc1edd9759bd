"""The length of a step is an input where samples are unevenly far apart in time."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
import yaml
from pydantic import ValidationError
from typer.testing import CliRunner

from scitoolkit import api
from scitoolkit.cli.main import app
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.rollout import step_once
from scitoolkit.emulation.stages import EmulationStages
from scitoolkit.surrogate import load, open_checked

X = np.arange(16)


def decaying(path, seed=0, rows=30, low=0.02, high=0.2, dates=False, units="s", scale=1.0):
    """A wave that decays and moves, at times whose steps are drawn over a decade."""
    random = np.random.default_rng(seed)
    steps = np.exp(random.uniform(np.log(low), np.log(high), rows - 1))
    if dates:
        steps = np.round(steps * 1e4)  # seconds
    times = np.concatenate([[0.0], np.cumsum(steps)])
    t = (times / 1e4 if dates else times)[:, None]
    u = np.exp(-0.3 * t) * np.cos(2 * np.pi * X / 16 - t + random.uniform(0, 6))
    axis = np.datetime64("2001-01-01", "ns") + times.astype("timedelta64[s]") if dates else times
    attributes = {} if dates else {"units": units}
    dataset = xr.Dataset(
        {"u": (("time", "x"), u.astype("f4"))},
        coords={"time": ("time", axis if dates else axis * scale, attributes), "x": X * 1.0},
    )
    dataset.to_netcdf(path, engine="h5netcdf")
    return dataset


def job(folder, **changes) -> dict:
    data = {
        "path": str(folder / "run*.nc"),
        "inputs": ["u"],
        "outputs": ["u"],
        "time_steps": "input",
        **changes,
    }
    return {
        "domain": "emulation",
        "data": data,
        "boundary": {"x": "circular"},
        "conditioning": "film",
        "model": {"name": "resnet", "width": 8},
        "rollout": {"long": 5, "evaluate": 4},
        "training": {
            "steps": 200,
            "batch_size": 8,
            "progress": False,
            "optimizer": {"name": "muon", "lr": 5e-3},
        },
        "run": {"root": str(folder / "runs")},
    }


@pytest.fixture(scope="module", params=[False, True], ids=["numbers", "dates"])
def trained(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("uneven")
    for seed in range(5):
        decaying(folder / f"run{seed}.nc", seed, dates=request.param)
    (folder / "job.yaml").write_text(yaml.safe_dump(job(folder)))
    return request.param, api.run(str(folder / "job.yaml")).path


@pytest.mark.parametrize("dates", [False, True])
@pytest.mark.parametrize("lead", [1, 2])
def test_each_window_has_the_time_to_its_next_samples(tmp_path, dates, lead):
    stored = [decaying(tmp_path / f"run{k}.nc", k, rows=9 + k, dates=dates) for k in range(3)]
    config = EmulationConfig.model_validate(job(tmp_path, lead=lead))
    data = EmulationStages().open(config, None)
    starts = np.concatenate([np.asarray(block[: len(block) - lead]) for block in data.blocks])
    batch = data.source(starts, [0]).read(np.arange(len(starts)))
    expected = []
    for one in stored:
        times = one["time"].values
        gaps = times[lead:] - times[:-lead]
        expected.append(gaps / np.timedelta64(1, "s") if dates else gaps)
    assert batch["step"][:, 0] == pytest.approx(np.concatenate(expected), rel=1e-6)
    assert data.layout.variables["step"].units == "s"
    data.close()


def test_steps_over_a_decade_are_learned(trained):
    dates, run = trained
    scores = api.evaluate(run).metrics
    assert scores["one_step_over_persistence_u"] < 0.15
    record = load(EmulationStages(), EmulationConfig, run).model.layout.step_range
    assert record[1] / record[0] > 5
    assert record[1] == pytest.approx(2000 if dates else 0.2, rel=0.1)


def test_a_prediction_is_at_the_times_that_are_asked_for(trained, tmp_path):
    dates, run = trained
    whole = decaying(tmp_path / "whole.nc", 9, rows=20, dates=dates)
    whole.isel(time=slice(0, 12)).to_netcdf(tmp_path / "start.nc", engine="h5netcdf")
    ahead = whole["time"].values[12:18]
    text = ",".join(str(t.astype("M8[s]")) if dates else repr(float(t)) for t in ahead)
    api.predict(run, tmp_path / "start.nc", tmp_path / "o.nc", times=text)
    model = load(EmulationStages(), EmulationConfig, run).model
    state, before = whole["u"].values[11], whole["time"].values[11]
    with xr.open_dataset(tmp_path / "o.nc") as outcome:
        assert (outcome["time"].values == ahead).all()
        for k, time in enumerate(ahead):
            gap = (time - before) / np.timedelta64(1, "s") if dates else time - before
            state = step_once(model, {"u": state, "step": np.float32(gap)})["u"]
            before = time
            assert outcome["u"].values[k] == pytest.approx(state, abs=1e-5)
        assert outcome["u"].values[0] == pytest.approx(whole["u"].values[12], abs=0.1)


def test_one_state_is_enough_to_start_from(trained, tmp_path):
    dates, run = trained
    whole = decaying(tmp_path / "whole.nc", 9, rows=3, dates=dates)
    whole.isel(time=[0]).to_netcdf(tmp_path / "start.nc", engine="h5netcdf")
    text = "2001-01-01T00:20,2001-01-01T00:40" if dates else "0.1,0.25"
    api.predict(run, tmp_path / "start.nc", tmp_path / "o.nc", times=text)
    assert xr.open_dataset(tmp_path / "o.nc").sizes["time"] == 2


def test_equal_steps_without_times(trained, tmp_path):
    dates, run = trained
    decaying(tmp_path / "start.nc", 9, dates=dates, low=0.1, high=0.1)
    api.predict(run, tmp_path / "start.nc", tmp_path / "o.nc", 4)
    with xr.open_dataset(tmp_path / "o.nc") as outcome:
        gaps = np.diff(outcome["time"].values)
        assert gaps / (np.timedelta64(1, "s") if dates else 1) == pytest.approx(
            1000 if dates else 0.1
        )


@pytest.mark.parametrize("text", ["9,10", "-1", "0.1,0.05", "soon", "2001-01-05", "nan", ""])
def test_times_that_were_not_trained_are_refused(trained, tmp_path, text):
    dates, run = trained
    decaying(tmp_path / "start.nc", 9, rows=2, dates=dates)
    with pytest.raises(ConfigError, match="times"):
        api.predict(run, tmp_path / "start.nc", tmp_path / "o.nc", times=text)
    assert not (tmp_path / "o.nc").exists()


@pytest.mark.parametrize("limits", [(0.3, 0.6), (0.001, 0.002), (0.02, 3.0)])
def test_files_with_other_steps_are_refused(trained, tmp_path, limits):
    dates, run = trained
    decaying(tmp_path / "other.nc", 9, low=limits[0], high=limits[1], dates=dates)
    with pytest.raises(DataError, match="steps from"):
        api.evaluate(run, data=tmp_path / "other.nc")


@pytest.mark.parametrize("trained", [False], indirect=True)
def test_another_unit_of_time_is_converted(trained, tmp_path):
    _, run = trained
    decaying(tmp_path / "a.nc", 9)
    decaying(tmp_path / "b.nc", 9, units="ms", scale=1000.0)
    one, other = (api.evaluate(run, data=tmp_path / f"{n}.nc").metrics for n in "ab")
    assert one["rmse_u"] == pytest.approx(other["rmse_u"], rel=1e-4)


def test_times_for_an_emulator_of_one_step_are_refused(tmp_path):
    for seed in range(3):
        decaying(tmp_path / f"run{seed}.nc", seed, low=0.1, high=0.1)
    settings = job(tmp_path, time_steps="even")
    settings |= {"conditioning": "channels"}
    settings["training"]["steps"] = 2
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(settings))
    run = api.train(str(tmp_path / "job.yaml")).path
    with pytest.raises(ConfigError, match="time_steps=input"):
        api.predict(run, tmp_path / "run0.nc", tmp_path / "o.nc", times="5,6")


def test_uneven_steps_are_refused_where_they_are_no_input(tmp_path):
    decaying(tmp_path / "run0.nc")
    config = EmulationConfig.model_validate(
        job(tmp_path, time_steps="even") | {"conditioning": "channels"}
    )
    with pytest.raises(DataError, match="step"):
        open_checked(EmulationStages(), config, None)


@pytest.mark.parametrize(
    "changes",
    [{"lead": 0, "outputs": ["v"]}, {"leads": [1, 2]}, {"history": 2}, {"parameters": ["step"]}],
)
def test_what_does_not_go_with_it_is_refused(tmp_path, changes):
    with pytest.raises(ValidationError, match="time_steps"):
        EmulationConfig.model_validate(job(tmp_path, **changes))


def test_the_command_line_reads_times(trained, tmp_path):
    dates, run = trained
    decaying(tmp_path / "start.nc", 9, rows=2, dates=dates, low=0.1, high=0.1)
    text = "2001-01-01T00:40" if dates else "0.2,0.3"
    arguments = ["predict", str(run), str(tmp_path / "start.nc"), "-o", str(tmp_path / "o.nc")]
    outcome = CliRunner().invoke(app, [*arguments, "--times", text])
    assert outcome.exit_code == 0, outcome.output
