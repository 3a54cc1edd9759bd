"""Cells with a latitude weigh by their area: in losses, scores, guards, means and energies."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest
import xarray as xr
import yaml

from scitoolkit import api
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.emulation.climatology import (
    FieldClimatology,
    days_of_year,
    fit_climatology,
    on_cells,
)
from scitoolkit.emulation.config import DataConfig, EmulationConfig
from scitoolkit.emulation.data import open_data
from scitoolkit.emulation.emulator import grid_of
from scitoolkit.emulation.ensemble import build_one
from scitoolkit.emulation.evaluation import Evaluation
from scitoolkit.emulation.regions import regions_of
from scitoolkit.emulation.report import metrics
from scitoolkit.emulation.rollout import step_once
from scitoolkit.emulation.stages import EmulationStages
from scitoolkit.emulation.statistics import measure
from scitoolkit.emulation.transfer import checked_widths
from scitoolkit.emulation.variables import Layout

NORTH = np.linspace(-87.5, 87.5, 36)
EAST = np.arange(0, 360, 30.0)
GAUSSIAN = np.degrees(np.arcsin(np.polynomial.legendre.leggauss(16)[0]))


def peer_weights(latitude: np.ndarray) -> np.ndarray:
    """Return WeatherBench-X's weights of increasing latitudes in degrees, mean 1."""
    x = np.deg2rad(latitude)
    bounds = np.concatenate(
        [
            [max(x[0] - (x[1] - x[0]) / 2, -np.pi / 2)],
            (x[:-1] + x[1:]) / 2,
            [min(x[-1] + (x[-1] - x[-2]) / 2, np.pi / 2)],
        ]
    )
    weights = np.sin(bounds[1:]) - np.sin(bounds[:-1])
    return weights / weights.mean()


def write(path, dims, coords, rows=6, seed=0, attrs=None):
    sizes = {"time": rows, **{d: len(v[1]) if d == v[0] else 0 for d, v in coords.items()}}
    for _, (own, values, _) in coords.items():
        own = (own,) if isinstance(own, str) else own
        sizes |= dict(zip(own, np.shape(values), strict=True))
    values = np.random.default_rng(seed).normal(size=[sizes[d] for d in dims])
    dataset = xr.Dataset({"t": (dims, values.astype(np.float32), attrs or {})}, coords=coords)
    dataset["time"] = np.datetime64("2001-01-01", "ns") + np.arange(rows) * np.timedelta64(6, "h")
    dataset.to_netcdf(path, engine="h5netcdf")
    return path


def layout_of(path, **options) -> Layout:
    section = DataConfig(path=path, inputs=["t"], outputs=["t"], **options)
    data = open_data(section)
    data.close()
    return data.layout


@pytest.mark.parametrize(
    "latitude",
    [NORTH, np.linspace(-90, 90, 19), np.linspace(20, 70, 11), GAUSSIAN, np.array([-3.0, 40.0])],
    ids=["centres", "poles", "region", "gaussian", "two"],
)
@pytest.mark.parametrize("name", ["lat", "y", "colat_index"])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("dims", [("time", "@", "lon"), ("time", "lon", "@"), ("@", "time", "lon")])
def test_weights_of_latitudes(tmp_path, latitude, name, turned, dims):
    values = latitude[::-1] if turned else latitude
    attrs = {} if name == "lat" else {"units": "degrees_north"}
    dims = tuple(name if d == "@" else d for d in dims)
    path = write(tmp_path / "a.nc", dims, {name: (name, values, attrs), "lon": ("lon", EAST, {})})
    layout = layout_of(path)
    expected = peer_weights(latitude)[:: -1 if turned else 1]
    axis = list(layout.grid).index(name)
    computed = np.moveaxis(layout.weights(), axis, 0)
    assert np.abs(computed - expected[:, None]).max() < 1e-6
    assert Layout.from_json(layout.to_json()).weights().tolist() == layout.weights().tolist()
    equal = layout_of(path, area_weights=False).weights()
    assert equal.mean() == pytest.approx(1)
    assert np.abs(equal - layout.weights()).max() > 0.05 or len(latitude) == 11


@pytest.mark.parametrize("units", ["radian", "radians", "rad"])
def test_latitude_in_radians(tmp_path, units):
    attrs = {"units": units, "standard_name": "latitude"}
    path = write(
        tmp_path / "a.nc",
        ("time", "lat", "lon"),
        {"lat": ("lat", np.radians(NORTH), attrs), "lon": ("lon", EAST, {})},
    )
    assert layout_of(path).weights()[:, 0] == pytest.approx(peer_weights(NORTH))


def test_radians_or_degrees_must_be_stated(tmp_path):
    path = write(
        tmp_path / "a.nc",
        ("time", "lat", "lon"),
        {"lat": ("lat", np.radians(NORTH), {}), "lon": ("lon", EAST, {})},
    )
    with pytest.raises(DataError, match="degrees or radians"):
        layout_of(path)
    layout_of(path, area_weights=False)


def test_beyond_the_pole(tmp_path):
    path = write(
        tmp_path / "a.nc",
        ("time", "lat", "lon"),
        {"lat": ("lat", np.arange(0, 180, 10.0), {}), "lon": ("lon", EAST, {})},
    )
    with pytest.raises(DataError, match="to 170 degrees"):
        layout_of(path)


@pytest.mark.parametrize("units", ["m", "K"])
def test_a_length_is_no_latitude(tmp_path, units):
    path = write(
        tmp_path / "a.nc",
        ("time", "lat", "lon"),
        {"lat": ("lat", NORTH, {"units": units}), "lon": ("lon", EAST, {})},
    )
    assert layout_of(path).areas is None


@pytest.mark.parametrize("turned", [False, True])
def test_stored_bounds_decide(tmp_path, turned):
    path = tmp_path / "a.nc"
    faces = np.concatenate([[-90.0], np.sort(np.random.default_rng(0).uniform(-85, 85, 9)), [90]])
    bounds = np.stack([faces[:-1], faces[1:]], 1)
    if turned:
        bounds = bounds[::-1]
    latitude = bounds.mean(1)
    write(
        path,
        ("time", "lat", "lon"),
        {
            "lat": ("lat", latitude, {"units": "degrees_north", "bounds": "lat_bnds"}),
            "lon": ("lon", EAST, {}),
            "lat_bnds": (("lat", "bnds"), bounds, {}),
        },
    )
    expected = np.abs(np.diff(np.sin(np.radians(bounds)), axis=1)[:, 0])
    assert layout_of(path).weights()[:, 0] == pytest.approx(expected / expected.mean())


def test_bounds_of_other_points_are_refused(tmp_path):
    bounds = np.stack([NORTH + 4, NORTH + 9], 1).clip(-90, 90)
    path = write(
        tmp_path / "a.nc",
        ("time", "lat", "lon"),
        {
            "lat": ("lat", NORTH, {"units": "degrees_north", "bounds": "lat_bnds"}),
            "lon": ("lon", EAST, {}),
            "lat_bnds": (("lat", "bnds"), bounds, {}),
        },
    )
    with pytest.raises(DataError, match="enclose"):
        layout_of(path)


def cells_of(latitude, longitude):
    """Return the areas of a regular grid's cells in degrees, by sines."""
    return np.outer(peer_weights(latitude), np.ones(len(longitude)))


@pytest.mark.parametrize("dims", [("time", "y", "x"), ("time", "x", "y")])
@pytest.mark.parametrize("timed", [False, True])
def test_regular_grid_with_latitudes_of_two_dims(tmp_path, dims, timed):
    lat, lon = np.meshgrid(NORTH, EAST, indexing="ij")
    own = ("y", "x")
    if timed:
        lat, lon = (np.broadcast_to(a, (6, *a.shape)) for a in (lat, lon))
        own = ("time", "y", "x")
    path = write(
        tmp_path / "a.nc",
        dims,
        {
            "XLAT": (own, lat, {"units": "degree_north"}),
            "XLONG": (own, lon, {"units": "degree_east"}),
        },
    )
    layout = layout_of(path)
    computed = layout.weights() if list(layout.grid) == ["y", "x"] else layout.weights().T
    assert computed == pytest.approx(cells_of(NORTH, EAST))


@pytest.mark.parametrize("dims", [("time", "y", "x"), ("time", "x", "y")])
def test_curvilinear_grid(tmp_path, dims):
    # A regular grid about a pole at the equator: its areas are known, its latitudes are mixed.
    own, around = np.linspace(-60, 60, 41), np.linspace(-50, 50, 31)
    phi, lam = np.radians(np.stack(np.meshgrid(own, around, indexing="ij")))
    x, y, z = np.cos(phi) * np.cos(lam), np.cos(phi) * np.sin(lam), np.sin(phi)
    lat, lon = np.degrees(np.arcsin(y)), np.degrees(np.arctan2(z, x))
    path = write(
        tmp_path / "a.nc",
        dims,
        {
            "nav_lat": (("y", "x"), lat, {"standard_name": "latitude", "units": "degrees_north"}),
            "nav_lon": (("y", "x"), lon, {"standard_name": "longitude", "units": "degrees_east"}),
        },
    )
    layout = layout_of(path)
    computed = layout.weights() if list(layout.grid) == ["y", "x"] else layout.weights().T
    assert computed == pytest.approx(cells_of(own, around), rel=3e-3)


def test_rotated_pole_has_areas_of_its_own_latitude(tmp_path):
    rotated = np.linspace(-20, 20, 9)
    lat, lon = np.meshgrid(rotated + 50, EAST, indexing="ij")
    path = write(
        tmp_path / "a.nc",
        ("time", "rlat", "rlon"),
        {
            "rlat": ("rlat", rotated, {"standard_name": "grid_latitude", "units": "degrees"}),
            "rlon": ("rlon", EAST, {"standard_name": "grid_longitude", "units": "degrees"}),
            "lat": (("rlat", "rlon"), lat, {"units": "degrees_north"}),
            "lon": (("rlat", "rlon"), lon, {"units": "degrees_east"}),
        },
    )
    assert layout_of(path).weights()[:, 0] == pytest.approx(peer_weights(rotated))


def globe(path, latitude=NORTH, **more):
    return write(
        path,
        ("time", "lat", "lon"),
        {
            "lat": ("lat", latitude, {"units": "degrees_north"}),
            "lon": ("lon", EAST, {"units": "degrees_east"}),
        },
        **more,
    )


def job(path, **more) -> EmulationConfig:
    data = {"path": path, "inputs": ["t"], "outputs": ["t"], **more.pop("data", {})}
    split = {"by": "time", "train": 0.7, "validation": 0.0, "test": 0.3}
    model = {"name": "unet", "widths": [4, 4]}
    return EmulationConfig.model_validate({"data": data, "split": split, "model": model, **more})


def test_guards_and_losses_weigh_by_area(tmp_path):
    config = job(globe(tmp_path / "a.nc"))
    data = EmulationStages().open(config, None)
    grid = grid_of(config, data.layout)
    assert grid.weights[:, 0] == pytest.approx(peer_weights(NORTH))
    data.close()


def stated(tmp_path, areas, *, dims=("y", "x"), measures="area: cells", encoding=None, **more):
    rng = np.random.default_rng(0)
    t = (("time", "y", "x"), rng.normal(size=(6, 7, 9)), {"cell_measures": measures})
    data = xr.Dataset({"t": t, "cells": (dims, areas, {"units": "m2"})}, coords=more)
    path = tmp_path / "a.nc"
    data.to_netcdf(path, engine="h5netcdf", encoding={"cells": encoding or {}})
    return path


@pytest.mark.parametrize("measures", ["area: cells", "volume: depths area: cells"])
@pytest.mark.parametrize("dims", [("y", "x"), ("x", "y"), ("y",)])
@pytest.mark.parametrize("kind", ["f4", "f8", "i2"])
def test_areas_that_cell_measures_name_are_weights(tmp_path, dims, measures, kind):
    sizes = {"y": 7, "x": 9}
    areas = np.random.default_rng(1).uniform(1e9, 3e9, [sizes[d] for d in dims])
    packed = {"dtype": "i2", "scale_factor": 1e5, "add_offset": 2e9, "_FillValue": -32768}
    encoding = packed if kind == "i2" else {}
    path = stated(tmp_path, areas.astype("f8"), dims=dims, measures=measures, encoding=encoding)
    expected = xr.DataArray(areas, dims=dims).transpose(..., "x", missing_dims="ignore").values
    expected = np.broadcast_to(expected if "x" in dims else areas[:, None], (7, 9))
    weights = layout_of(path).weights()
    assert np.abs(weights - expected / expected.mean()).max() < (1e-4 if kind == "i2" else 1e-6)
    assert (layout_of(path, area_weights=False).weights() == 1).all()


def test_stated_areas_come_before_those_of_latitudes(tmp_path):
    areas = np.random.default_rng(1).uniform(1, 3, (7, 9))
    path = stated(tmp_path, areas, y=("y", np.linspace(-60, 60, 7), {"units": "degrees_north"}))
    assert layout_of(path).weights() == pytest.approx(areas / areas.mean(), rel=1e-6)


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_areas_that_are_none_are_refused(tmp_path, value):
    areas = np.ones((7, 9))
    areas[2, 3] = value
    path = stated(tmp_path, areas)
    with pytest.raises(DataError, match="1 cell areas are missing or not positive"):
        layout_of(path)
    layout_of(path, area_weights=False)


@pytest.mark.parametrize(
    ("dims", "latitude", "message"),
    [
        (("y", "x"), np.add.outer(np.arange(7.0), np.arange(9.0)), "without longitudes"),
        (("y",), np.array([0.0, 5, 3, 9, 11, 20, 30]), "neither increase nor decrease"),
    ],
)
def test_latitudes_that_do_not_give_areas_are_refused(tmp_path, dims, latitude, message):
    coordinate = {"phi": (dims, latitude, {"units": "degrees_north"})}
    path = stated(tmp_path, np.ones((7, 9)), measures="", **coordinate)
    with pytest.raises(DataError, match=message):
        layout_of(path)
    assert layout_of(path, area_weights=False).areas is None


def test_equal_latitudes_of_an_ideal_case_need_no_areas(tmp_path):
    phi = (("y", "x"), np.full((7, 9), 45.0), {"units": "degrees_north"})
    assert layout_of(stated(tmp_path, np.ones((7, 9)), measures="", phi=phi)).areas is None


def test_simulations_of_other_regions_are_refused(tmp_path):
    globe(tmp_path / "a.nc", np.linspace(0, 30, 12))
    globe(tmp_path / "b.nc", np.linspace(30, 60, 12), seed=1)
    config = job(tmp_path / "*.nc")
    data = EmulationStages().open(config, None)
    with pytest.raises(DataError, match="cells of other areas"):
        EmulationStages().examine(config, data)
    data.close()


def nest(path, width, seed=0, start=40.0):
    """Write cells of a region, with latitudes at each time as WRF stores them."""
    t = np.random.default_rng(seed).normal(size=(6, 7, 9))
    y, x = np.meshgrid(np.arange(7.0), np.arange(9.0), indexing="ij")
    places = {"XLAT": (start + width * (y + 0.1 * x), "north"), "XLONG": (width * x, "east")}
    along = ("time", "y", "x")
    data = xr.Dataset({"t": (along, t)}, {"time": np.arange(6.0)}).assign(
        {
            name: (along, np.broadcast_to(degrees, t.shape), {"units": f"degrees_{side}"})
            for name, (degrees, side) in places.items()
        }
    )
    data.to_netcdf(path, engine="h5netcdf")


@pytest.mark.parametrize("width", [0.5, 0.49, 1.5])
def test_nests_of_equal_shape_have_other_cells(tmp_path, width):
    for number in range(4):
        nest(tmp_path / f"d{number}.nc", width if number % 2 else 0.5, number, 40 + number / 2)
    config = job(tmp_path / "*.nc")
    data = EmulationStages().open(config, None)
    if width < 1:
        checked_widths(config, data.campaign, data.layout)
    else:
        with pytest.raises(DataError, match="cells differ from those of simulation d0"):
            checked_widths(config, data.campaign, data.layout)
    data.close()


def weather(path, seed, years=2, rows=None, latitude=NORTH[::3], dims=("time", "lat", "lon")):
    """A wave that moves eastward through a seasonal cycle, in daily fields."""
    times = np.arange("2001-01-01", f"{2001 + years}-01-01", dtype="datetime64[D]")[:rows]
    day = np.arange(len(times))[:, None, None]
    phase = np.random.default_rng(seed).uniform(0, 6)
    phi, lam = np.radians(latitude)[:, None], np.radians(EAST)
    t = 280 + 20 * np.cos(phi) + 10 * np.sin(phi) * np.cos(2 * np.pi * day / 365.25)
    t = t + 3 * np.cos(phi) ** 2 * np.cos(lam - 0.3 * day + phase)
    dataset = xr.Dataset(
        {"t": (("time", "lat", "lon"), t.astype(np.float32), {"units": "K"})},
        coords={
            "time": times.astype("datetime64[ns]"),
            "lat": ("lat", latitude, {"units": "degrees_north"}),
            "lon": ("lon", EAST, {"units": "degrees_east"}),
        },
    )
    dataset.transpose(*dims).to_netcdf(path, engine="h5netcdf")
    return dataset


@pytest.mark.parametrize(
    ("by", "window", "turned"),
    [("day_of_year", 1, False), ("day_of_year", 9, True), ("constant", 1, True)],
)
def test_rmse_and_acc_equal_an_independent_computation(tmp_path, by, window, turned):
    latitude = NORTH[::3][:: -1 if turned else 1]
    dims = ("time", "lon", "lat") if turned else ("time", "lat", "lon")
    training = weather(tmp_path / "train.nc", 0, rows=500, latitude=latitude, dims=dims)
    weather(tmp_path / "test.nc", 1, rows=130, latitude=latitude, dims=dims)
    config = job(
        tmp_path / "train.nc",
        data={"test": tmp_path / "test.nc"},
        climatology={"by": by, "window": window},
        boundary={"lon": "circular"},
        split={"by": "time", "train": 1.0, "validation": 0.0, "test": 0.0},
    )
    stages = EmulationStages()
    data = stages.open(config, None)
    climatology = fit_climatology(config, data, data.blocks)
    test = stages.open(config, tmp_path / "test.nc")
    emulator = build_one(config, data.layout, 0).eval()
    emulator.set_statistics(measure(data, data.blocks, config))
    evaluation = Evaluation(emulator, test, [range(100, 130)], config, None, climatology)
    scores = metrics(evaluation)

    frames = [test.frame(s)["t"] for s in range(100, 130)]
    forecast = np.stack([step_once(emulator, {"t": f})["t"] for f in frames[:-1]])
    order = ("time", *data.layout.grid)
    stored = xr.open_dataset(tmp_path / "test.nc")["t"].transpose(*order)
    truth = stored.isel(time=slice(101, 130)).astype(np.float64)
    own = truth.copy(data=forecast)
    temperature = training["t"].transpose(*order).astype(np.float64)
    if by == "constant":
        normal = temperature.mean("time")
    else:
        days = temperature["time"].dt.dayofyear
        half = (window - 1) // 2
        normal = xr.concat(
            [
                temperature.isel(time=np.flatnonzero(np.abs(days.values - int(day)) <= half)).mean(
                    "time"
                )
                for day in truth["time"].dt.dayofyear.values
            ],
            dim=truth["time"],
        )
    weights = xr.DataArray(
        peer_weights(np.sort(latitude)), dims="lat", coords={"lat": np.sort(latitude)}
    )
    bands = {
        "": slice(None),
        "_tropics": slice(-20, 20),
        "_northern_extratropics": slice(20, 90),
        "_southern_extratropics": slice(-90, -20),
    }
    for ending, band in bands.items():
        a, b = (x.sortby("lat").sel(lat=band) for x in (own - normal, truth - normal))
        w = weights.sel(lat=band)
        rmse = float(np.sqrt(((a - b) ** 2).weighted(w).mean()))
        acc = (a * b).weighted(w).mean() / np.sqrt(
            (a**2).weighted(w).mean() * (b**2).weighted(w).mean()
        )
        assert scores[f"rmse_t{ending}"] == pytest.approx(rmse, rel=1e-6)
        assert scores[f"acc_t{ending}"] == pytest.approx(float(acc), abs=1e-6)
    stored.close()
    data.close()
    test.close()


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A short training on two years of weather, with regions."""
    folder = tmp_path_factory.mktemp("weather")
    weather(folder / "train.nc", 0)
    weather(folder / "test.nc", 1, rows=30)
    config = {
        "domain": "emulation",
        "data": {
            "path": str(folder / "train.nc"),
            "test": str(folder / "test.nc"),
            "inputs": ["t"],
            "outputs": ["t"],
        },
        "split": {"by": "time", "train": 0.9, "validation": 0.1, "test": 0.0},
        "boundary": {"lon": "circular"},
        "regions": {"tropics": {"latitude": [-20, 20]}, "pacific": {"longitude": [150, -100]}},
        "model": {"name": "unet", "widths": [4, 4]},
        "rollout": {"long": 0, "evaluate": 3},
        "training": {"steps": 6, "batch_size": 4, "progress": False},
        "run": {"root": str(folder / "runs")},
    }
    path = folder / "job.yaml"
    path.write_text(yaml.safe_dump(config))
    return api.run(str(path)).path


def test_a_report_has_regions_and_anomaly_correlations(trained):
    computed = json.loads((trained / "model" / "metrics.json").read_text())
    assert {"acc_t", "acc_t_tropics", "rmse_t_pacific", "rollout3_acc_t"} <= set(computed)
    assert 0 <= computed["useful_steps_t"] <= 3
    page = (trained / "report" / "index.html").read_text()
    assert "Scores by region" in page
    assert "same day of the year" in page


def test_files_from_north_to_south_and_in_radians_have_equal_scores(trained, tmp_path):
    folder = next(p for p in trained.parents if (p / "job.yaml").exists())
    with xr.open_dataset(folder / "test.nc") as stored:
        part = stored.isel(time=slice(0, 12)).load()
    scores = []
    for name, turned in (("a", part), ("b", part.isel(lat=slice(None, None, -1)))):
        turned.to_netcdf(tmp_path / f"{name}.nc", engine="h5netcdf")
        scores.append(api.evaluate(trained, data=tmp_path / f"{name}.nc").metrics)
    radians = part.assign_coords(lat=("lat", np.radians(part["lat"].values), {"units": "radian"}))
    radians["lat"].attrs["standard_name"] = "latitude"
    radians.to_netcdf(tmp_path / "c.nc", engine="h5netcdf")
    scores.append(api.evaluate(trained, data=tmp_path / "c.nc").metrics)
    for key in ("rmse_t", "acc_t", "acc_t_tropics", "rmse_t_pacific", "rollout3_acc_t"):
        assert scores[1][key] == pytest.approx(scores[0][key], rel=1e-5)
        assert scores[2][key] == pytest.approx(scores[0][key], rel=1e-5)


def test_a_day_that_the_training_lacks_is_refused_by_name(tmp_path):
    weather(tmp_path / "a.nc", 0, years=1)
    settings = {
        "split": {"by": "time", "train": 0.5, "validation": 0.0, "test": 0.5},
        "boundary": {"lon": "circular"},
    }
    asked = job(tmp_path / "a.nc", climatology={"by": "day_of_year"}, **settings)
    auto = job(tmp_path / "a.nc", **settings)
    stages = EmulationStages()
    data = stages.open(asked, None)
    with pytest.raises(ConfigError, match="within 15 days of day"):
        stages.examine(asked, data)
    stages.examine(auto, data)
    blocks = stages.split(auto, data)["train"]
    assert fit_climatology(auto, data, blocks).by == "constant"
    none = job(tmp_path / "a.nc", climatology={"by": "none"}, **settings)
    assert fit_climatology(none, data, blocks) is None
    data.close()


@pytest.mark.parametrize(
    ("regions", "message"),
    [
        ({"moon": {"height": [0, 1]}}, "no coordinate of the grid"),
        ({"nowhere": {"lat": [40.1, 40.2]}}, "no cell"),
        ({"both": {"lat": [0, 90], "longitude": [31, 31]}}, "no cell"),
    ],
)
def test_regions_without_cells_are_refused(tmp_path, regions, message):
    config = job(globe(tmp_path / "a.nc", rows=20), regions=regions)
    stages = EmulationStages()
    data = stages.open(config, None)
    with pytest.raises(ConfigError, match=message):
        stages.examine(config, data)
    data.close()


def test_a_region_across_the_meridian_where_longitudes_begin(tmp_path):
    config = job(globe(tmp_path / "a.nc"), regions={"atlantic": {"longitude": [-60, 0]}})
    data = EmulationStages().open(config, None)
    _, region = regions_of(config, data)
    assert EAST[region.weights.sum(0) > 0].tolist() == [0, 300, 330]
    data.close()


def test_a_climatology_is_stored_bit_for_bit(tmp_path):
    days = np.array([[1, 0], [1, 43200], [200, 0]])
    means = {"t": np.random.default_rng(0).normal(size=(3, 2, 2))}
    stored = FieldClimatology(days, np.array([2, 1, 1]), means, 3)
    stored.save(tmp_path)
    loaded = FieldClimatology.load(tmp_path)
    for day in ([1, 0], [366, 43200], [210, 0]):
        assert (loaded.at(np.array(day))["t"] == stored.at(np.array(day))["t"]).all()
    with pytest.raises(DataError, match="day 100 of the year"):
        loaded.at(np.array([100, 0]))
    assert FieldClimatology.load(tmp_path / "none") is None


@pytest.mark.parametrize("calendar", ["noleap", "360_day", "standard"])
def test_days_of_the_year_are_those_of_xarray(calendar):
    times = xr.date_range(
        "2003-12-25T06:00",
        periods=900,
        freq="18h",
        calendar=calendar,
        use_cftime=calendar != "standard",
    )
    dates = xr.DataArray(times, dims="time")
    computed = days_of_year(dates.values)
    assert (computed[:, 0] == dates.dt.dayofyear.values).all()
    assert (computed[:, 1] == 3600 * dates.dt.hour.values).all()


@pytest.mark.parametrize("start", [0.0, -180.0, 360.0, -60.0, 15.0])
@pytest.mark.parametrize("unit", [1.0, np.pi / 180])
def test_a_climatology_follows_longitudes(tmp_path, caplog, start, unit):
    trained = layout_of(globe(tmp_path / "a.nc"))
    dims, cells = list(trained.grid), tuple(trained.grid.values())
    lon = np.arange(trained.grid["lon"]) * 360 / trained.grid["lon"]
    other = start + lon
    layouts = [
        replace(trained, coordinates={**trained.coordinates, "lon": (x * unit).tolist()})
        for x in (lon, other)
    ]
    shape = [1] * len(dims)
    shape[dims.index("lon")] = -1
    means = np.broadcast_to(np.cos(np.radians(lon)).reshape(shape), cells)[None]
    one = FieldClimatology(np.zeros((0, 2), np.int64), np.ones(1), {"t": means})
    rolled = on_cells(one, *layouts)
    if (start * trained.grid["lon"]) % 360:
        assert rolled is None
        assert "no anomaly correlations" in caplog.text
    else:
        expected = np.broadcast_to(np.cos(np.radians(other)).reshape(shape), cells)
        np.testing.assert_allclose(rolled.means["t"][0], expected, atol=1e-12)
