"""What files say of dims, times and values holds whatever the names, and nothing is guessed."""

import numpy as np
import pytest
import xarray as xr

from scitoolkit.core.errors import DataError
from scitoolkit.io.campaign import Options, open_campaign
from scitoolkit.io.campaign.survey import survey
from scitoolkit.io.loader.packing import Packing

RANDOM = np.random.default_rng(0)


def wave(times=12, y=5, x=6, seed=0):
    phases = np.arange(x) / x + 0.1 * np.arange(times)[:, None, None] + seed
    return np.sin(2 * np.pi * phases) + 0.1 * np.arange(y)[:, None]


def save(path, values, dims=("time", "y", "x"), coords=None, attrs=None, name="u"):
    dataset = xr.Dataset({name: (dims, values)}, coords or {})
    for key, value in (attrs or {}).items():
        dataset[key].attrs.update(value)
    dataset.to_netcdf(path, engine="h5netcdf")
    return path


@pytest.mark.parametrize("name", ["time_counter", "valid_time", "ocean_time", "Time", "q", "lev"])
@pytest.mark.parametrize("how", ["dates", "axis", "standard_name", "units"])
def test_a_time_by_metadata_is_the_time_whatever_its_name(tmp_path, name, how):
    stamps = {"dates": np.datetime64("2001-01-01", "ns") + np.arange(12) * np.timedelta64(1, "D")}
    attrs = {
        "axis": {"axis": "T"},
        "standard_name": {"standard_name": "time"},
        "units": {"units": "hours since 1900-01-01", "calendar": "noleap"},
    }
    for run in range(3):
        coords = {name: stamps.get(how, 30 * run + np.arange(12.0))}
        if how == "dates":
            coords[name] = coords[name] + np.timedelta64(30 * run, "D")
        named = {name: attrs[how]} if how in attrs else {}
        save(tmp_path / f"run{run}.nc", wave(seed=run), (name, "y", "x"), coords, named)
    campaign = open_campaign(tmp_path)
    assert campaign.describe()["simulations"] == 3
    assert campaign.describe()["rows"] == 36


def test_two_times_are_asked_for(tmp_path):
    values = np.zeros((4, 3, 5))
    coords = {"init": np.arange(4.0), "lead": np.arange(3.0)}
    since = {"units": "days since 2000-01-01"}
    attrs = {"init": since, "lead": since}
    path = save(tmp_path / "a.nc", values, ("init", "lead", "x"), coords, attrs)
    with pytest.raises(DataError, match="sample_dim"):
        open_campaign(path)


@pytest.mark.parametrize("name", ["number", "realization", "member_id", "Member"])
def test_members_of_an_ensemble_are_simulations(tmp_path, name):
    values = np.stack([wave(seed=k) for k in range(4)], 1)
    path = save(tmp_path / "a.nc", values, ("time", name, "lat", "lon"))
    assert open_campaign(path).describe()["simulations"] == 4


@pytest.mark.parametrize("kind", ["complex64", "complex128"])
def test_complex_numbers_are_refused_by_name(tmp_path, kind):
    import h5py

    with h5py.File(tmp_path / "psi.h5", "w") as file:
        file["psi"] = (wave() + 1j * wave(seed=1)).astype(kind)
    with pytest.raises(DataError, match="complex"):
        open_campaign(tmp_path / "psi.h5", ["psi"], Options(dims=["time", "y", "x"]))


@pytest.mark.parametrize("at", [3, 8])
@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_missing_times_are_refused(tmp_path, at, scale):
    times = scale * np.delete(np.arange(14.0), [at, at + 1])
    path = save(tmp_path / "a.nc", wave(), coords={"time": times})
    with pytest.raises(DataError, match="times are missing between rows"):
        open_campaign(path)


def test_months_and_varying_steps_have_no_gap(tmp_path):
    months = np.datetime64("2001-01", "M") + np.arange(12)
    save(tmp_path / "months.nc", wave(), coords={"time": months.astype("datetime64[ns]")})
    steps = np.cumsum(RANDOM.uniform(0.02, 0.15, 12))
    save(tmp_path / "cfl.nc", wave(), coords={"time": steps})
    for name in ("months.nc", "cfl.nc"):
        assert open_campaign(tmp_path / name).describe()["rows"] == 12


@pytest.mark.parametrize("turn", ["reversed", "shifted"])
def test_simulations_in_another_orientation_are_refused(tmp_path, turn):
    lat, lon = np.linspace(-40, 40, 5), np.arange(6) * 60.0
    for run in range(3):
        other = run == 1
        here = lat[::-1] if other and turn == "reversed" else lat
        there = lon - 180 if other and turn == "shifted" else lon
        coords = {"lat": here, "lon": there}
        save(tmp_path / f"run{run}.nc", wave(seed=run), ("time", "lat", "lon"), coords)
    with pytest.raises(DataError, match="in simulation run0"):
        open_campaign(tmp_path)


def test_bounds_and_other_grids_are_not_learned_and_are_told(tmp_path):
    dataset = xr.Dataset(
        {
            "lat_bnds": (("time", "lat", "bnds"), np.zeros((12, 5, 2))),
            "tas": (("time", "lat", "lon"), wave()),
            "staggered": (("time", "lat", "lon_u"), wave(x=7)),
            "forcing": (("time",), np.arange(12.0)),
        },
        {"lat": ("lat", np.arange(5.0), {"bounds": "lat_bnds"}), "lon": np.arange(6.0)},
    )
    dataset.to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    told = survey([str(tmp_path / "a.nc")])
    remarks = "\n".join(told.remarks)
    assert told.moving == ["staggered"] or told.moving == ["tas"]
    for name in {"tas", "staggered", "forcing", "lat_bnds"} - set(told.moving):
        assert name in remarks


@pytest.mark.parametrize("missing", [1e20, -9.99e33, 40000.5, -32769])
def test_missing_values_that_the_stored_type_cannot_hold(missing):
    attrs = {"scale_factor": 1e-3, "missing_value": np.float64(missing)}
    stored = np.array([-32768, 0, 32767], "i2")
    np.testing.assert_allclose(Packing.of(stored.dtype, attrs).unpack(stored), stored * 1e-3)


def test_a_large_offset_is_added_in_float64():
    attrs = {"scale_factor": 1e-3, "add_offset": 101325.0}
    stored = np.arange(-5, 5, dtype="i2")
    values = Packing.of(stored.dtype, attrs).unpack(stored)
    np.testing.assert_allclose(values, 101325 + stored * 1e-3, rtol=0, atol=1e-9)


def test_a_file_without_numbers_is_refused(tmp_path):
    import h5py

    h5py.File(tmp_path / "a.h5", "w").close()
    with pytest.raises(DataError, match="no array of numbers"):
        open_campaign(tmp_path / "a.h5")
