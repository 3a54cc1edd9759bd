"""Cells with a latitude weigh by their area: in losses, scores, guards, means and energies."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from scitoolkit.core.errors import DataError
from scitoolkit.emulation.config import DataConfig, EmulationConfig
from scitoolkit.emulation.data import open_data
from scitoolkit.emulation.emulator import grid_of
from scitoolkit.emulation.stages import EmulationStages
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
    found = np.moveaxis(layout.weights(), axis, 0)
    assert np.abs(found - expected[:, None]).max() < 1e-6
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
    found = layout.weights() if list(layout.grid) == ["y", "x"] else layout.weights().T
    assert found == pytest.approx(cells_of(NORTH, EAST))


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
    found = layout.weights() if list(layout.grid) == ["y", "x"] else layout.weights().T
    assert found == pytest.approx(cells_of(own, around), rel=3e-3)


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


def test_simulations_of_other_regions_are_refused(tmp_path):
    globe(tmp_path / "a.nc", np.linspace(0, 30, 12))
    globe(tmp_path / "b.nc", np.linspace(30, 60, 12), seed=1)
    config = job(tmp_path / "*.nc")
    data = EmulationStages().open(config, None)
    with pytest.raises(DataError, match="cells of other areas"):
        EmulationStages().examine(config, data)
    data.close()
