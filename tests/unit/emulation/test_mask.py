"""Cells without values: nothing of them is learned, scored or written."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
import xarray as xr
import yaml

from scitoolkit import api
from scitoolkit.core.config import load_config
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.jobs import job_for_task
from scitoolkit.core.starter import DataToStart
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.stages import prepare, statistics_of
from scitoolkit.emulation.surrogate import load, save
from scitoolkit.io.fields import write_fields

ROWS, GRID = 8, (6, 8)
WET = np.random.default_rng(0).random(GRID) > 0.3


def write(path, seed: int, land: float | np.ndarray, wet: np.ndarray = WET):
    """Write a simulation of two fields with some values on land."""
    generator = np.random.default_rng(seed)
    u, v = (generator.normal(size=(ROWS, *GRID)) for _ in range(2))
    data = {
        n: (("time", "y", "x"), np.where(wet, a, land).astype("f4"))
        for n, a in zip("uv", (u, v), strict=True)
    }
    data["wet"] = (("y", "x"), wet.astype("i1"))
    return write_fields(xr.Dataset(data), path)


@pytest.fixture
def plan(tmp_path, job):
    """Return what is prepared of files that hold some values on land."""

    def make(land, mask="wet", count=3, **sections):
        folder = tmp_path / f"run{len(list(tmp_path.glob('run*')))}"
        folder.mkdir()
        for seed in range(count):
            write(folder / f"sim{seed}.nc", seed, land)
        data = {"path": str(folder), "inputs": ["u", "v"], "outputs": ["u", "v"], "mask": mask}
        sections = {"rollout": {"noise": 0.1}, "wall_weight": 0.5, **sections}
        path = job(data, split={"train": 2, "validation": 1, "test": 0}, **sections)
        return prepare(load_config(EmulationConfig, path))

    return make


def outcome(prepared):
    """Return statistics, losses and a step of the emulator."""
    torch.manual_seed(0)
    found = statistics_of(prepared.opened).statistics
    numbers = [*(t for pair in found.values.values() for t in pair), *found.changes.values()]
    batch = next(iter(prepared.loaders["validation"]))
    torch.nn.init.normal_(list(prepared.model.parameters())[-1])  # it begins as persistence
    loss, _ = prepared.task.loss(batch)
    step = prepared.model.eval()(batch["u"][:, 0], batch["v"][:, 0])
    return torch.cat(
        [
            *numbers,
            loss.reshape(1),
            prepared.task.metrics(batch)["loss"].reshape(1),
            *(s.ravel() for s in step),
        ]
    )


def test_values_on_land_have_no_influence(plan):
    generator = np.random.default_rng(1)
    expected = outcome(plan(0.0))
    assert torch.isfinite(expected).all()
    for land in (np.nan, -1e6, generator.normal(size=GRID) * 1e3):
        assert torch.equal(outcome(plan(land)), expected)
    assert torch.equal(outcome(plan(np.nan, "missing")), expected)


def test_only_cells_of_the_mask_are_measured_and_learned(plan):
    prepared = plan(np.nan, "missing")
    files = sorted(prepared.opened.data.campaign.files)[:2]
    truth = np.concatenate([xr.open_dataset(f)["u"].values[:, WET] for f in files]).astype("f8")
    mean, deviation = statistics_of(prepared.opened).statistics.values["u"]
    assert mean.item() == pytest.approx(truth.mean(), abs=1e-6)
    assert deviation.item() == pytest.approx(truth.std(), rel=1e-6)
    weights = prepared.task.weights.numpy()
    assert (weights[~WET] == 0).all()
    assert weights.mean() == pytest.approx(1)
    inputs = [torch.full((1, *GRID), np.nan), torch.zeros(1, *GRID)]
    inputs[0][:, torch.from_numpy(WET)] = 1.0
    for field in prepared.model.eval()(*inputs):
        assert (field[:, ~WET] == 0).all()
        assert torch.isfinite(field).all()


WET_CELL, LAND_CELL = np.argwhere(WET)[0], np.argwhere(~WET)[0]


@pytest.mark.parametrize("trains", [True, False], ids=["measured", "read"])
@pytest.mark.parametrize(
    ("mask", "at", "value", "message"),
    [
        ("missing", WET_CELL, np.nan, "1 values are NaN or Inf in cells of the mask.*sim1, row 5"),
        ("missing", LAND_CELL, 1.0, "1 cells have values that are missing in the.*sim1, row 5"),
        ("wet", WET_CELL, np.nan, "1 values are NaN or Inf in cells of the mask.*sim1, row 5"),
        ("wet", None, 0, "the mask wet differs in 1 cells from that of .* sim0.*sim1, row 0"),
    ],
)
def test_a_mask_that_changes_is_refused_with_its_row(
    tmp_path, job, mask, at, value, message, trains
):
    for seed in range(2):
        write(tmp_path / f"sim{seed}.nc", seed, np.nan)
    with xr.open_dataset(tmp_path / "sim1.nc") as file:
        data = file.load()
    if at is None:
        data["wet"][0, 0] = 1 - data["wet"][0, 0]
    else:
        data["u"].values[5, *at] = value
    write_fields(data, tmp_path / "sim1.nc")
    section = {"path": str(tmp_path / "sim*.nc"), "inputs": ["u"], "outputs": ["u"], "mask": mask}
    split = {"train": 2 if trains else 1, "validation": 0 if trains else 1, "test": 0}

    def read():
        prepared = prepare(load_config(EmulationConfig, job(section, split=split)))
        assert not trains
        list(prepared.loaders["validation"])

    with pytest.raises(DataError) as caught:
        read()
    assert re.search(message, f"{caught.value.what} {caught.value.where}")


@pytest.mark.parametrize(
    ("sections", "where"),
    [
        ({"transport": {"x": 2}}, "transport"),
        ({"guards": [{"name": "divergence_free", "velocity": {"x": "u", "y": "v"}}]}, "guards.0"),
        ({"guards": [{"name": "fixed_mean", "values": {"u": "kept"}, "over": ["x"]}]}, "guards.0"),
        ({"boundary": {"x": "circular"}, "symmetries": {"shift": ["x"]}}, "symmetries.shift"),
        ({"symmetries": {"mirror": {"y": ["v"]}}}, "symmetries.mirror.y"),
    ],
)
def test_what_cannot_work_with_a_mask_is_refused_by_name(plan, sections, where):
    with pytest.raises(ConfigError, match=r"not possible with data\.mask") as caught:
        plan(np.nan, **sections)
    assert caught.value.where == where


def test_fields_whose_missing_cells_differ_need_a_variable(tmp_path, job):
    write(tmp_path / "a.nc", 0, np.nan)
    with xr.open_dataset(tmp_path / "a.nc") as file:
        data = file.load()
    data["v"].values[:, 0, :] = np.nan
    write_fields(data, tmp_path / "a.nc")
    section = {"path": str(tmp_path / "a.nc"), "inputs": ["u", "v"], "outputs": ["u", "v"]}
    with pytest.raises(DataError, match=r"(?s)cells of v are missing.*data\.mask=NAME"):
        prepare(load_config(EmulationConfig, job({**section, "mask": "missing"})))
    with pytest.raises(DataError, match=r"(?s)axes .*the grid of the fields"):
        prepare(
            load_config(
                EmulationConfig, job({**section, "inputs": ["u"], "outputs": ["u"], "mask": "v"})
            )
        )


@pytest.mark.parametrize(
    ("mask", "change", "message"),
    [
        (None, "hole", r"row 3, variable u: 1 values are NaN"),
        ("missing", "hole", r"row 3, variable u: 1 values are NaN or Inf in cells of the mask"),
        ("missing", "moves", r"row 3, variable u: \d+ values are NaN or Inf in cells of the mask"),
    ],
)
def test_validate_refuses_holes_and_masks_that_move(tmp_path, job, mask, change, message):
    write(tmp_path / "a.nc", 0, np.nan if mask else 0.0)
    with xr.open_dataset(tmp_path / "a.nc") as file:
        data = file.load()
    row = data["u"].values[3]
    row[...] = np.roll(row, 1, axis=1) if change == "moves" else row
    if change == "hole":
        row[tuple(np.argwhere(WET)[0])] = np.nan
    write_fields(data, tmp_path / "a.nc")
    section = {"path": str(tmp_path / "a.nc"), "inputs": ["u", "v"], "outputs": ["u", "v"]}
    section |= {"mask": mask} if mask else {}
    split = {"by": "time", "train": 1.0, "validation": 0.0, "test": 0.0}
    config = load_config(EmulationConfig, job(section, split=split))
    with pytest.raises(DataError, match=message):
        job_for_task("emulate").validate(config)


def test_a_mask_is_saved_with_the_weights(plan, tmp_path):
    prepared = plan(np.nan, "missing", guards=[{"name": "value_range", "ranges": {"u": [-9, 9]}}])
    save(prepared.model, tmp_path)
    config = EmulationConfig.model_validate(yaml.safe_load((tmp_path / "job.yaml").read_text()))
    loaded = load(tmp_path, config)
    assert (loaded.layout.valid == WET).all()
    assert torch.equal(loaded.advance.valid, prepared.model.advance.valid)


def test_sea_surface_temperature_is_learned_and_predicted_with_its_land(tmp_path):
    (source,) = (Path(__file__).parents[3] / "datasets" / "ersst_v5").glob("*.nc")
    made = job_for_task("emulate").starter(DataToStart([str(source)], [str(source)]))
    config = yaml.safe_load(made)
    assert config["data"]["mask"] == "missing"
    config |= {
        "run": {"root": str(tmp_path / "runs")},
        "model": {"name": "unet", "widths": [4, 8]},
        "rollout": {"evaluate": 2, "long": 2, "predict": 3},
    }
    config["training"] |= {"steps": 4, "batch_size": 2, "progress": False}
    config["split"] = {"by": "time", "train": 20, "validation": 3, "test": 4}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(config))
    run = api.train(str(tmp_path / "job.yaml")).path
    results = api.evaluate(run)
    assert all(np.isfinite(v) for k, v in results.metrics.items() if k.startswith("rmse"))
    api.predict(run, source, tmp_path / "future.nc")
    with xr.open_dataset(source) as truth, xr.open_dataset(tmp_path / "future.nc") as found:
        land = np.isnan(truth["sst"].values[0])
        assert (np.isnan(found["sst"].values) == land).all()
        assert np.isnan(found["sst"].encoding["_FillValue"])
        expected, truth = found["sst"].load(), truth.load().drop_encoding()
    del truth.sst.attrs["valid_range"]  # of degC
    kelvin = truth.assign(sst=(truth.sst + 273.15).assign_attrs(units="K"))
    changed = {
        "kelvin": kelvin,
        "north first": truth.sortby("lat", ascending=bool(truth.lat[0] > truth.lat[1])),
        "transposed": truth.transpose("lon", "lat", "time", ...),
        "all": kelvin.isel(lat=slice(None, None, -1)).transpose("lon", "time", "lat", ...),
    }
    for name, data in changed.items():
        data.to_netcdf(tmp_path / "changed.nc", engine="h5netcdf")
        api.predict(run, tmp_path / "changed.nc", tmp_path / "out.nc")
        with xr.open_dataset(tmp_path / "out.nc") as found:
            actual = found["sst"].transpose(*expected.dims).sel(lat=expected.lat)
            assert float(abs(actual - expected).max()) < 2e-4, name
            assert (np.isnan(actual) == land).all(), name
    moved = truth.assign(sst=truth.sst.roll(lat=1).assign_attrs(truth.sst.attrs))
    moved.to_netcdf(tmp_path / "changed.nc", engine="h5netcdf")
    with pytest.raises(DataError, match="valid cells"):
        api.predict(run, tmp_path / "changed.nc", tmp_path / "out.nc")
