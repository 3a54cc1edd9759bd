"""An emulator learns from a campaign: nothing is joined across simulations, in silence or not."""

from __future__ import annotations

import json
import shutil

import h5py
import numpy as np
import pytest
import xarray as xr

from scitoolkit import api
from scitoolkit.core.config import load_config
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.deploy import CompiledSurrogate
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.stages import prepare
from scitoolkit.emulation.surrogate import load
from scitoolkit.io.fields import write_fields

ROWS, CELLS = 12, 16


def simulation(number: int, rows: int = ROWS) -> np.ndarray:
    """A slow drift about a level that differs much from one simulation to the next."""
    t, x = np.meshgrid(np.arange(rows), np.arange(CELLS), indexing="ij")
    return (number + 0.01 * t + 0.1 * np.sin(2 * np.pi * x / CELLS)).astype("f4")


@pytest.fixture
def plan(tmp_path, job):
    """Return what a configuration prepares, for a path and sections."""

    def make(path, inputs=("u",), split=None, **data):
        section = {"path": path, "inputs": list(inputs), "outputs": list(inputs), **data}
        split = split or {"train": 3, "validation": 1, "test": 0}
        path = job(section, split=split, model={"name": "unet", "widths": [4]})
        return prepare(load_config(EmulationConfig, path))

    return make


def windows(prepared, part="train"):
    """Return every window of a part, (windows, 2, cells)."""
    return np.concatenate([b["u"].numpy() for b in prepared.loaders[part]])


def write_plain(tmp_path, count=4):
    for i in range(count):
        with h5py.File(tmp_path / f"plain{i}.h5", "w") as file:
            file["u"] = simulation(i)
    return str(tmp_path / "plain*.h5")


def write_on_cells(tmp_path, coordinates, **attributes):
    for i, x in enumerate(coordinates):
        data = xr.Dataset({"u": (("time", "x"), simulation(i))}, coords={"x": x})
        write_fields(
            data.assign_attrs({n: v[i] for n, v in attributes.items()}), tmp_path / f"grid{i}.nc"
        )
    return str(tmp_path / "grid*.nc")


def test_cells_of_other_widths_are_refused(tmp_path, plan):
    x = np.arange(CELLS, dtype=float)
    files = write_on_cells(tmp_path, [x, x, 2 * x, x])
    with pytest.raises(DataError, match=r"simulation grid0 \(x: 2 wide for 1\)") as error:
        plan(files)
    assert "grid2" in str(error.value)


def test_cells_of_other_widths_are_learned_with_a_parameter(tmp_path, job, caplog):
    x = np.arange(CELLS, dtype=float)
    files = write_on_cells(
        tmp_path, [x, 1.5 * x, 2 * x, x, 2 * x], length=[1.0, 1.5, 2.0, 1.0, 2.0]
    )
    data = {"path": files, "inputs": ["u"], "outputs": ["u"], "parameters": ["length"]}
    path = job(
        data,
        split={"train": 3, "validation": 1, "test": 1},
        training={"steps": 2},
        model={"name": "unet", "widths": [4]},
    )
    run = api.train(path)
    emulator = load(run.path / "model", load_config(EmulationConfig, path))
    assert emulator.layout.cell_widths["x"] == pytest.approx((1.0, 2.0))
    api.evaluate(run.path)
    caplog.clear()
    api.predict(run.path, tmp_path / "grid1.nc", tmp_path / "next.nc")
    assert "grid differs" not in caplog.text
    write_fields(
        xr.Dataset(
            {"u": (("time", "x"), simulation(0))}, coords={"x": 3 * x}, attrs={"length": 3.0}
        ),
        tmp_path / "wide.nc",
    )
    with pytest.raises(DataError, match="trained on points 2, not 3 apart"):
        api.predict(run.path, tmp_path / "wide.nc", tmp_path / "no.nc")


@pytest.mark.parametrize("viscosity", [[1.0, 2.0, 3.0, 4.0], [1.0, 1.0, 1.0, 1.0]])
def test_a_parameter_that_does_not_follow_the_width_of_the_cells_is_not_enough(
    tmp_path, plan, viscosity
):
    x = np.arange(CELLS, dtype=float)
    write_on_cells(tmp_path, [x, 2 * x, 1.2 * x, x], viscosity=viscosity)
    with pytest.raises(DataError, match="parameters that increases"):
        plan(str(tmp_path / "grid*.nc"), parameters=["viscosity"])


def test_positions_may_differ_unless_the_network_sees_them(tmp_path, job):
    x = np.arange(CELLS, dtype=float)
    files = write_on_cells(tmp_path, [x, x + 5, x, x])
    data = {"path": files, "inputs": ["u"], "outputs": ["u"]}
    settings = dict(
        split={"train": 3, "validation": 1, "test": 0}, model={"name": "unet", "widths": [4]}
    )
    assert prepare(load_config(EmulationConfig, job(data, **settings)))
    path = job(data, **settings, coordinates=["x"])
    with pytest.raises(DataError, match="position along x is an input"):
        prepare(load_config(EmulationConfig, path))


@pytest.mark.parametrize("with_time", [False, True])
def test_several_files_are_several_simulations(tmp_path, plan, with_time):
    if with_time:
        for i in range(4):
            data = xr.Dataset(
                {"u": (("time", "x"), simulation(i))}, coords={"time": 0.02 * np.arange(ROWS)}
            )
            write_fields(data, tmp_path / f"sim{i}.nc")
        prepared = plan(str(tmp_path / "sim*.nc"))
    else:
        prepared = plan(write_plain(tmp_path), dims=["time", "x"])
    assert prepared.opened.data.campaign.index.num_simulations == 4
    found = windows(prepared)
    # One step changes u by .01; a window across simulations would show a change of 1.
    assert np.abs(found[:, 1] - found[:, 0]).max() < 0.02
    scale = prepared.model.output_scales()[0].item()
    assert scale == pytest.approx(0.01, rel=0.01)
    assert prepared.opened.parts["validation"] == [range(3 * ROWS, 4 * ROWS)]


def test_files_whose_times_go_on_are_one_simulation(tmp_path, plan):
    whole = simulation(0, 3 * ROWS)
    for i in (0, 1, 2):
        part = slice(i * ROWS, (i + 1) * ROWS)
        data = xr.Dataset(
            {"u": (("time", "x"), whole[part])}, coords={"time": 0.02 * np.arange(3 * ROWS)[part]}
        )
        # The order of the names is not that of the times.
        write_fields(data, tmp_path / f"part{(i + 1) % 3}.nc")
    prepared = plan(str(tmp_path / "part*.nc"), split={"train": 30, "validation": 6, "test": 0})
    assert prepared.opened.data.blocks == [range(3 * ROWS)]
    found = prepared.opened.data.source(np.array([ROWS - 1]), [0, 1]).read(np.array([0]))["u"]
    assert np.array_equal(found[0], whole[ROWS - 1 : ROWS + 1])


def test_components_are_channels_and_not_a_dim_of_the_grid(tmp_path, plan):
    values = np.random.default_rng(0).standard_normal((ROWS, 2, 8, 8)).astype("f4")
    write_fields(xr.Dataset({"v": (("time", "c", "y", "x"), values)}), tmp_path / "v.nc")
    prepared = plan(str(tmp_path / "v.nc"), ["v"], {"train": 8, "validation": 4, "test": 0})
    assert prepared.opened.data.layout.grid == {"y": 8, "x": 8}
    assert [v.name for v in prepared.opened.data.layout.inputs] == ["v_0", "v_1"]
    batch = next(iter(prepared.loaders["validation"]))
    assert np.array_equal(batch["v_1"].numpy()[0, 0], values[8, 1])
    spatial = plan(
        str(tmp_path / "v.nc"),
        ["v"],
        {"train": 8, "validation": 4, "test": 0},
        grid=["c", "y", "x"],
    )
    assert spatial.opened.data.layout.grid == {"c": 2, "y": 8, "x": 8}


def test_groups_of_hdf5_are_read_by_path_and_by_name(tmp_path, plan):
    with h5py.File(tmp_path / "heat.h5", "w") as file:
        file["Fields/Temp"] = simulation(2)
        file["Fields/Src"] = simulation(3)
    for name in ("Temp", "Fields/Temp"):
        prepared = plan(
            str(tmp_path / "heat.h5"),
            [name],
            dims=["time", "x"],
            split={"train": 8, "validation": 4, "test": 0},
        )
        batch = next(iter(prepared.loaders["validation"]))
        assert np.array_equal(next(iter(batch.values())).numpy()[0, 0], simulation(2)[8])
    with pytest.raises(DataError, match="Fields/Src"):
        plan(str(tmp_path / "heat.h5"), ["Tmp"], dims=["time", "x"])


def test_a_coordinate_longer_than_its_data_is_refused(tmp_path, plan):
    with h5py.File(tmp_path / "long.h5", "w") as file:
        file["u"], file["time"] = simulation(0), np.arange(ROWS + 1.0)
    with pytest.raises(DataError, match=r"13 times for 12 rows"):
        plan(str(tmp_path / "long.h5"), dims=["time", "x"])


@pytest.mark.parametrize(("value", "message"), [(0.0, "never written"), (-9999.0, "fill value")])
def test_what_was_never_measured_is_named_before_training(tmp_path, plan, value, message):
    for i in range(4):
        data = simulation(i + 1)
        if i == 1:
            data[-4:] = value
        write_fields(xr.Dataset({"u": (("time", "x"), data)}), tmp_path / f"s{i}.nc")
    with pytest.raises(DataError, match=message) as caught:
        plan(str(tmp_path / "s*.nc"))
    assert "simulation s1, row 8" in str(caught.value)
    assert plan(str(tmp_path / "s*.nc"), allow_suspect=True)


def test_simulations_that_differ_are_named(tmp_path, plan):
    for i in range(4):
        shape = (ROWS, CELLS if i != 2 else 9)
        write_fields(xr.Dataset({"u": (("time", "x"), np.ones(shape))}), tmp_path / f"s{i}.nc")
    with pytest.raises(DataError, match=r"s2\.nc.*'x': 9"):
        plan(str(tmp_path / "s*.nc"))
    for i in range(4):
        data = xr.Dataset(
            {"u": (("time", "x"), simulation(i))},
            coords={"time": (1.0 + (i == 3)) * np.arange(ROWS)},
        )
        write_fields(data, tmp_path / f"s{i}.nc")
    with pytest.raises(DataError, match="simulation s3 has a time step of 2"):
        plan(str(tmp_path / "s*.nc"))
    with pytest.raises(ConfigError, match="simulations in all"):
        plan(
            [str(tmp_path / "s0.nc"), str(tmp_path / "s1.nc")],
            split={"train": 3, "validation": 1, "test": 0},
        )


def test_an_emulator_of_a_campaign_is_trained_and_evaluated(tmp_path, job):
    path = job(
        {
            "path": write_plain(tmp_path, 5),
            "inputs": ["u"],
            "outputs": ["u"],
            "dims": ["time", "x"],
        },
        training={"steps": 3},
    )
    run = api.train(path)
    results = api.evaluate(run.path)
    assert results.metrics["test_samples"] == ROWS
    (tmp_path / "all").mkdir()
    for file in tmp_path.glob("plain*.h5"):
        file.rename(tmp_path / "all" / file.name)
    with pytest.raises(DataError, match="5 simulations"):
        api.predict(run.path, tmp_path / "all", tmp_path / "out.nc")


@pytest.mark.parametrize("way", ["table", "attribute", "film"])
def test_a_parameter_of_each_simulation_is_an_input(tmp_path, job, way, caplog):
    """The change in a step is the parameter, drawn for each simulation."""
    rng, rates = np.random.default_rng(0), np.linspace(0.01, 0.1, 8)
    for i, rate in enumerate(rates):
        start = rng.standard_normal(CELLS)
        u = (start + rate * np.arange(ROWS)[:, None]).astype("f4")
        data = xr.Dataset({"u": (("time", "x"), u)})
        data.attrs = {"rate": rate} if way == "attribute" else {}
        if way == "film":
            data["rate"] = (
                ((), 1e3 * rate, {"units": "mm"}) if i == 3 else ((), rate, {"units": "m"})
            )
        write_fields(data, tmp_path / f"run{i}.nc")
    table = tmp_path / "runs.csv"
    table.write_text("run,rate\n" + "".join(f"run{i},{r}\n" for i, r in enumerate(rates)))
    extra = {"parameter_table": str(table)} if way == "table" else {}
    section = {
        "path": str(tmp_path / "run*.nc"),
        "inputs": ["u"],
        "outputs": ["u"],
        "parameters": ["rate"],
        **extra,
    }
    split = {"by": "parameter", "parameter": "rate", "test_range": [0.03, 0.05], "validation": 1}
    split["train"] = 5
    path = job(
        section,
        split=split,
        model={"name": "unet", "widths": [4]},
        conditioning="film" if way == "film" else "channels",
        training={"epochs": 20, "batch_size": 8, "optimizer": {"name": "adam", "lr": 0.02}},
    )
    config = load_config(EmulationConfig, path)
    prepared = prepare(config)
    assert [v.name for v in prepared.model.layout.inputs] == ["u", "rate"]
    assert [block.start // ROWS for block in prepared.opened.parts["test"]] == [2, 3]
    batch = next(iter(prepared.loaders["train"]))
    change = (batch["u"][:, 1] - batch["u"][:, 0]).mean(1)
    assert np.allclose(change, batch["rate"][:, 0], atol=1e-5)
    trained = api.train(path).path
    # A change that knows nothing of the rate is above .35 here.
    assert "extrapolates" not in caplog.text
    assert api.evaluate(trained).metrics["one_step_over_persistence_u"] < 0.2
    api.predict(trained, tmp_path / "run3.nc", tmp_path / "next.nc")
    with xr.open_dataset(tmp_path / "next.nc") as found:
        assert float((found["u"][1] - found["u"][0]).mean()) == pytest.approx(rates[3], rel=0.1)
    if way == "film" and shutil.which("gcc"):
        library = tmp_path / "model.so"
        found = api.export(trained, library)
        assert found["largest_difference"] < 1e-4
        low, high = found["inputs"][1]["box"]
        assert [low[0], high[1]] == pytest.approx([rates[0], rates[-2]])
        fields = np.zeros((2, CELLS), np.float32)
        inside = np.array([rates[1], 0.5], np.float32)
        assert CompiledSurrogate(library)(fields, inside)[1].tolist() == [0, 1]
    caplog.clear()
    with xr.open_dataset(tmp_path / "run3.nc") as known:
        write_fields(known.load().assign_attrs(rate=0.5), tmp_path / "run9.nc")
    table.write_text("run,rate\nrun9,0.5\n")
    api.predict(trained, tmp_path / "run9.nc", tmp_path / "next.nc")
    assert "rate is 0.5 in simulation run9; the emulator learned from 0.01 to 0.087" in caplog.text


def test_pressures_less_a_number_are_learned_where_float32_would_lose_their_changes(tmp_path):
    phase = np.arange(8) / 8 + np.arange(12)[:, None] / 20
    named = {"standard_name": "air_pressure"}
    for number in range(3):
        p = 101325 + 1e-3 * np.sin(2 * np.pi * (phase + number / 3))
        for unit, factor in (("Pa", 1.0), ("hPa", 0.01)):
            data = xr.Dataset({"p": (("time", "x"), factor * p, {"units": unit, **named})})
            data.to_netcdf(tmp_path / f"{unit}_{number}.nc", engine="h5netcdf")
    settings = {
        "domain": "emulation",
        "run": {"root": str(tmp_path / "runs")},
        "data": {"path": str(tmp_path / "Pa_*.nc"), "inputs": ["p"], "outputs": ["p"]},
        "model": {"name": "unet", "widths": [4]},
        "training": {"steps": 2, "batch_size": 2, "progress": False},
    }
    path = tmp_path / "job.yaml"
    path.write_text(json.dumps(settings))
    with pytest.raises(DataError, match=r"float32 spacing.*data.offsets=\{p: 101325"):
        api.train(path)
    settings["data"]["offsets"] = {"p": 101325.0}
    path.write_text(json.dumps(settings))
    run = api.train(path).path
    with xr.open_dataset(api.predict(run, tmp_path / "Pa_0.nc", tmp_path / "o.nc")) as out:
        assert out.p.attrs["long_name"] == "p minus 101325.0"
        assert "standard_name" not in out.p.attrs
        assert 1e-5 < float(np.abs(out.p).max()) < 1e-2
    with pytest.raises(DataError, match=r"p is in another unit, and data.offsets"):
        api.evaluate(run, data=tmp_path / "hPa_0.nc")
