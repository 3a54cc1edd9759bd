"""A prediction tells which forcings it holds at their last values."""

from __future__ import annotations

import types

import numpy as np
import pytest
import xarray as xr
import yaml
from typer.testing import CliRunner

from scitoolkit import api
from scitoolkit.cli.main import app
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.emulation import prediction
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.prediction import _held_forcings
from scitoolkit.emulation.rollout import step_once
from scitoolkit.emulation.stages import EmulationStages
from scitoolkit.emulation.variables import Layout, Variable
from scitoolkit.surrogate import load


def layout(inputs: str, outputs: str) -> Layout:
    def fields(names: str):
        return tuple(Variable(n, ("x",), (4,), "", True) for n in names)

    return Layout(fields(inputs), fields(outputs), {"x": 4}, {"x": [0.0, 1.0, 2.0, 3.0]}, "t")


def data(rows: int, on: Layout, **values):
    frames = [
        {n: np.full(4, values[n](k) if n in values else k, np.float32) for n in on.variables}
        for k in range(rows)
    ]
    return types.SimpleNamespace(num_samples=rows, layout=on, frame=lambda k: frames[k])


def config(inputs: str, outputs: str, **more) -> EmulationConfig:
    section = {"path": "none.nc", "inputs": list(inputs), "outputs": list(outputs), **more}
    return EmulationConfig.model_validate({"data": section, "model": "resnet"})


@pytest.mark.parametrize(
    ("inputs", "outputs", "values", "held"),
    [
        ("uf", "u", {}, ["f"]),
        ("uf", "u", {"f": lambda k: 3.0}, []),
        ("uf", "u", {"f": lambda k: np.nan}, []),  # land
        ("uf", "u", {"f": lambda k: float(k == 9)}, ["f"]),
        ("ufg", "u", {"g": lambda k: 1.0}, ["f"]),
        ("u", "u", {}, []),
    ],
)
def test_forcings_that_change_in_time(inputs, outputs, values, held):
    on = layout(inputs, outputs)
    assert _held_forcings(config(inputs, outputs), on, data(10, on, **values)) == held


def test_one_sample_tells_nothing():
    on = layout("uf", "u")
    assert _held_forcings(config("uf", "u"), on, data(1, on)) == []


def pushed(path, rows=24, start=0, step=6, *, heat=True, seed=0, hours=None, units="K", sign=1):
    """A field that a heating pushes: u(t + 1) = u(t) + q(t), on the ground h; dates every 6 h."""
    x = np.arange(16) * 1.0
    count = np.arange(start, start + rows)
    q = 0.5 * np.sin(0.7 * count)[:, None] * np.cos(2 * np.pi * x / 16)
    u0 = np.random.default_rng(seed).normal(size=16)
    u = u0 + np.cumsum(np.concatenate([np.zeros((1, 16)), q[:-1]]), 0)
    values = {"u": (("time", "x"), u.astype("f4"), {"units": units})}
    values["q"] = (("time", "x"), q.astype("f4"))
    values["h"] = (("x",), np.cos(x).astype("f4"))
    times = np.datetime64("2001-01-01", "ns") + count * np.timedelta64(step, "h")
    dataset = xr.Dataset(values, coords={"time": times, "x": x})
    if not heat:
        dataset = dataset[["q"]]
    dataset = dataset.isel(x=slice(None, None, sign))
    if hours is not None:
        dataset = dataset.assign_coords(time=dataset["time"] + np.timedelta64(hours, "h"))
    dataset.to_netcdf(path, engine="h5netcdf")
    return dataset


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pushed")
    for seed in range(3):
        pushed(folder / f"run{seed}.nc", seed=seed)
    return train(folder)


def train(folder, **data):
    data = {"path": str(folder / "run*.nc"), "inputs": ["u", "q", "h"], "outputs": ["u"], **data}
    job = {
        "domain": "emulation",
        "data": data,
        "boundary": {"x": "circular"},
        "model": {"name": "unet", "widths": [4, 4]},
        "rollout": {"long": 0, "evaluate": 3},
        "training": {"steps": 4, "batch_size": 4, "progress": False},
        "run": {"root": str(folder / "runs")},
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    return api.train(str(folder / "job.yaml")).path


def test_a_forcing_has_values_where_the_state_has_none(tmp_path):
    def with_land(dataset, names=("u",)):
        return dataset.assign({n: dataset[n].where(dataset.x < 13) for n in names})

    for seed in range(3):
        data = with_land(pushed(tmp_path / "all.nc", seed=seed))
        data.to_netcdf(tmp_path / f"run{seed}.nc", engine="h5netcdf")
    run = train(tmp_path, mask="missing")
    whole = with_land(pushed(tmp_path / "all.nc", rows=30, seed=7))
    whole.isel(time=slice(0, 12)).to_netcdf(tmp_path / "start.nc", engine="h5netcdf")
    outcomes = []
    for names in ((), ("q",)):
        with_land(whole[["q"]], names).to_netcdf(tmp_path / "force.nc", engine="h5netcdf")
        out = tmp_path / "out.nc"
        api.predict(run, tmp_path / "start.nc", out, 6, forcing=tmp_path / "force.nc")
        with xr.open_dataset(out) as outcome:
            outcomes.append(outcome["u"].load())
    np.testing.assert_array_equal(*outcomes)
    assert (outcomes[0].isnull() == (whole.x >= 13)).all()
    assert float(outcomes[0].std("time").max()) > 0


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("offset", [0, 3, 11])
def test_a_rollout_reads_its_forcing_by_time(trained, tmp_path, offset, sign):
    # The forcing file begins before the rollout, is finer or not, or is stored from its end.
    pushed(tmp_path / "start.nc", rows=12, seed=7)
    whole = pushed(tmp_path / "whole.nc", rows=30, seed=7)
    pushed(tmp_path / "force.nc", rows=30 - offset, start=offset, heat=False, sign=sign)
    out = api.predict(
        trained, tmp_path / "start.nc", tmp_path / "o.nc", 10, forcing=tmp_path / "force.nc"
    )
    model = load(EmulationStages(), EmulationConfig, trained)
    state = whole["u"].values[11]
    with xr.open_dataset(out) as outcome:
        assert (outcome["time"].values == whole["time"].values[12:22]).all()
        for k in range(10):
            frame = {"u": state, "q": whole["q"].values[11 + k], "h": whole["h"].values}
            state = step_once(model.model, frame)["u"]
            assert outcome["u"].values[k] == pytest.approx(state, abs=1e-5)


def test_a_finer_forcing_is_read_at_the_steps(trained, tmp_path):
    pushed(tmp_path / "start.nc", rows=12, seed=7)
    coarse = pushed(tmp_path / "coarse.nc", rows=30, heat=False)
    hourly = coarse.resample(time="3h").interpolate("linear")
    hourly.to_netcdf(tmp_path / "fine.nc", engine="h5netcdf")
    outputs = []
    for name in ("coarse", "fine"):
        path = tmp_path / f"{name}_out.nc"
        api.predict(trained, tmp_path / "start.nc", path, 6, forcing=tmp_path / f"{name}.nc")
        with xr.open_dataset(path) as outcome:
            outputs.append(outcome["u"].values)
    assert outputs[0] == pytest.approx(outputs[1], abs=1e-5)


@pytest.mark.parametrize(
    ("forcing", "message"),
    [
        ({"rows": 14, "heat": False}, "no values at time 2001-01-04T12:00"),
        ({"rows": 30, "heat": False, "hours": 1}, "no values at time"),
        ({"rows": 30, "heat": False, "step": 12}, "no values at time"),
        ({"rows": 30, "start": 200, "heat": False}, "no values at time"),
    ],
)
def test_a_time_without_forcing_is_refused(trained, tmp_path, forcing, message):
    pushed(tmp_path / "start.nc", rows=12)
    pushed(tmp_path / "force.nc", **forcing)
    with pytest.raises(DataError, match=message):
        api.predict(
            trained, tmp_path / "start.nc", tmp_path / "o.nc", 6, forcing=tmp_path / "force.nc"
        )
    assert not (tmp_path / "o.nc").exists()


def other_forcing(tmp_path, change):
    dataset = change(pushed(tmp_path / "a.nc", rows=30, heat=False).load())
    dataset.to_netcdf(tmp_path / "force.nc", engine="h5netcdf")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d.isel(x=slice(0, 15)), "other cells"),
        (lambda d: d.assign_coords(x=d["x"] + 3), "other cells"),
        (lambda d: d.rename(q="r"), "holds none of"),
        (lambda d: d.assign_coords(time=np.arange(30.0)), "numbers"),
        (lambda d: d.convert_calendar("noleap"), "calendar"),
        (lambda d: d.isel(time=[*range(14), 13, *range(14, 30)]), "time|samples at"),
    ],
)
def test_a_forcing_of_other_data_is_refused(trained, tmp_path, change, message):
    pushed(tmp_path / "start.nc", rows=12)
    other_forcing(tmp_path, change)
    with pytest.raises(DataError, match=message):
        api.predict(
            trained, tmp_path / "start.nc", tmp_path / "o.nc", 6, forcing=tmp_path / "force.nc"
        )


def test_a_forcing_that_changes_is_not_held_unasked(trained, tmp_path):
    start = tmp_path / "start.nc"
    pushed(start, rows=12)
    with pytest.raises(ConfigError, match="q change in time"):
        api.predict(trained, start, tmp_path / "o.nc", 6)
    assert not (tmp_path / "o.nc").exists()
    api.predict(trained, start, tmp_path / "one.nc", 1)  # needs the last sample alone
    api.predict(trained, start, tmp_path / "held.nc", 6, forcing="hold")
    with pytest.raises(ConfigError, match="mapped by itself"):
        api.predict(trained, start, tmp_path / "map.nc", 0, forcing=start)


def test_one_sample_does_not_tell_what_changes(trained, tmp_path, caplog):
    pushed(tmp_path / "start.nc", rows=1, seed=7)
    api.predict(trained, tmp_path / "start.nc", tmp_path / "o.nc", 3)
    assert "one sample does not tell whether q change in time" in caplog.text
    caplog.clear()
    api.predict(trained, tmp_path / "start.nc", tmp_path / "p.nc", 3, forcing="hold")
    assert "one sample" not in caplog.text


def test_a_prediction_in_parts_continues_with_its_forcing(trained, tmp_path, monkeypatch):
    pushed(tmp_path / "start.nc", rows=12)
    pushed(tmp_path / "force.nc", rows=30, heat=False)
    outputs = []
    for name, size in (("one", 2**20), ("many", 1)):
        monkeypatch.setattr(prediction, "PART_BYTES", size)
        path = tmp_path / f"{name}.nc"
        api.predict(trained, tmp_path / "start.nc", path, 8, forcing=tmp_path / "force.nc")
        with xr.open_dataset(path) as outcome:
            outputs.append(outcome["u"].values)
    assert (outputs[0] == outputs[1]).all()


def test_the_command_line_reads_a_forcing(trained, tmp_path):
    pushed(tmp_path / "start.nc", rows=12)
    pushed(tmp_path / "force.nc", rows=30, heat=False)
    arguments = [str(trained), str(tmp_path / "start.nc"), "-o", str(tmp_path / "o.nc")]
    outcome = CliRunner().invoke(
        app, ["predict", *arguments, "--steps", "4", "--forcing", str(tmp_path / "force.nc")]
    )
    assert outcome.exit_code == 0, outcome.output
    assert xr.open_dataset(tmp_path / "o.nc").sizes["time"] == 4


def test_forecasts_of_months_are_dated_by_the_calendar():
    times = np.arange("2001-01", "2001-12", dtype="M8[M]").astype("M8[ns]")
    outcome = prediction._future(times, 3, 2).astype("M8[M]").astype(str)
    assert outcome.tolist() == ["2002-01", "2002-03", "2002-05"]
