"""Coordinates of predictions on curvilinear grids."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from scitoolkit import api

ABOUT = {
    "units": "m",
    "standard_name": "sea_surface_height_above_geoid",
    "long_name": "level",
    "cell_methods": "time: mean",
}


@pytest.mark.parametrize("stored", ["once", "at every time", "of a moving grid"])
def test_latitudes_over_two_dims_are_those_of_the_file(job, tmp_path, stored):
    shape, dims = (24, 8, 6), ("time", "eta_rho", "xi_rho")
    lat = np.linspace(30, 32, 8)[:, None] + 0.1 * np.arange(6)
    zeta = np.random.default_rng(0).normal(size=shape).astype("f4")
    data = xr.Dataset(
        {"zeta": (dims, zeta, ABOUT), "h": (dims[1:], np.full(shape[1:], 9.0)), "crs": 0},
        {
            "time": ("time", np.arange(24.0), {"units": "hours since 2000-01-01"}),
            "lat_rho": (dims[1:], lat, {"units": "degrees_north"}),
            "lon_rho": (dims[1:], lat - 100, {"units": "degrees_east"}),
        },
    )
    if stored != "once":
        shift = 0.1 * (stored == "of a moving grid") * xr.DataArray(np.arange(24.0), dims="time")
        for name in ("lat_rho", "lon_rho"):
            timed = (data[name] + shift).transpose(*dims)
            data[name] = timed.assign_attrs(data[name].attrs)
    data.to_netcdf(tmp_path / "roms.nc", engine="h5netcdf")
    source = {"path": str(tmp_path / "roms.nc"), "inputs": ["zeta"], "outputs": ["zeta"]}
    config = job(
        source,
        split={"by": "time", "train": 16, "validation": 4, "test": 4},
        model={"name": "unet", "widths": [4]},
        training={"steps": 1, "batch_size": 2},
        rollout={"predict": 2, "long": 0},
    )
    path = api.predict(api.train(config).path, tmp_path / "roms.nc", tmp_path / "out.nc", steps=2)
    with xr.open_dataset(path) as predicted:
        assert {name: predicted.zeta.attrs[name] for name in ABOUT} == ABOUT
        if stored == "of a moving grid":
            assert set(predicted.coords) == {"time"}
            return
        assert set(predicted.coords) == {"time", "lat_rho", "lon_rho"}
        np.testing.assert_array_equal(predicted.zeta.lat_rho, lat)
        assert predicted.lon_rho.attrs["units"] == "degrees_east"
