from __future__ import annotations

import errno
import os
import subprocess
import sys

import cftime
import h5py
import numpy as np
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from scitoolkit.core.content import content_root
from scitoolkit.core.errors import DataError
from scitoolkit.io.coordinates import (
    check_field,
    check_time,
    latitude_name,
    require_dims,
    spatial_dims,
    time_dim,
)
from scitoolkit.io.fields import open_fields, write_fields

TIMES = np.arange("2001-01", "2001-07", dtype="M8[M]").astype("M8[ns]")


@pytest.fixture
def dataset() -> xr.Dataset:
    rng = np.random.default_rng(0)
    return xr.Dataset(
        {
            "sst": (("time", "lat", "lon"), rng.normal(size=(6, 4, 5)), {"units": "degC"}),
            "ice": (("time", "lat", "lon"), rng.normal(size=(6, 4, 5)), {"units": "1"}),
        },
        coords={"time": TIMES, "lat": ("lat", np.arange(4.0), {"units": "degrees_north"})},
    )


def _netcdf3(dataset, path, unlimited=("time",)):
    dataset.to_netcdf(path, engine="scipy", format="NETCDF3_64BIT", unlimited_dims=unlimited)
    return path


@pytest.mark.parametrize("kind", ["netcdf3", "netcdf3-fixed", "netcdf4", "zarr"])
def test_every_format_opens_the_same(dataset, tmp_path, kind):
    path = tmp_path / "data"
    if kind == "netcdf4":
        write_fields(dataset, path)
    elif kind == "zarr":
        pytest.importorskip("zarr")
        dataset.to_zarr(path, consolidated=False)
    else:
        _netcdf3(dataset, path, ("time",) if kind == "netcdf3" else ())
    with open_fields(path, "sst", units={"sst": "celsius"}) as found:
        assert list(found) == ["sst"]
        xr.testing.assert_equal(found["sst"].load(), dataset["sst"])


@settings(max_examples=20, deadline=None)
@given(
    shape=st.tuples(st.integers(1, 4), st.integers(1, 3)),
    dtype=st.sampled_from(["f4", "f8", "i4", "u1"]),
    seed=st.integers(0, 99),
)
def test_what_is_written_is_read(tmp_path_factory, shape, dtype, seed):
    values = np.random.default_rng(seed).uniform(0, 200, shape).astype(dtype)
    path = tmp_path_factory.mktemp("r") / "a.nc"
    data = xr.Dataset({"u": (("time", "x"), values, {"units": "m"})})
    write_fields(data, path)
    with open_fields(path, "u") as found:
        assert found["u"].dtype == dtype
        xr.testing.assert_identical(found.load(), data)


@pytest.mark.parametrize("cut", [0, 3, 40, 200, 0.5, 0.9, -1])
@pytest.mark.parametrize("kind", ["netcdf3", "netcdf4"])
def test_a_truncated_file_is_named_with_its_size(dataset, tmp_path, cut, kind):
    path = tmp_path / "a.nc"
    _netcdf3(dataset, path) if kind == "netcdf3" else write_fields(dataset, path)
    whole = path.read_bytes()
    size = int(cut * len(whole)) if isinstance(cut, float) else cut % len(whole)
    path.write_bytes(whole[:size])
    with pytest.raises(DataError, match=rf"a\.nc: .*\({size} bytes"):
        open_fields(path)


@pytest.mark.parametrize("part", [0.01, 0.5, 0.999])
def test_the_shipped_file_cut_short_is_refused(tmp_path, part):
    (whole,) = (content_root("datasets") / "ersst_v5").glob("*.nc")
    data = whole.read_bytes()
    (tmp_path / "a.nc").write_bytes(data[: int(part * len(data))])
    with pytest.raises(DataError, match="damaged or truncated"):
        open_fields(tmp_path / "a.nc", "sst")


def test_packing_and_both_fill_values_are_undone(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        u = file.create_dataset("u", data=np.array([1, 2, -9, -8], "i2"))
        u.attrs.update(scale_factor=0.5, add_offset=10.0, units="K")
        u.attrs.update(_FillValue=np.int16(-9), missing_value=np.int16(-8))
    with open_fields(tmp_path / "a.h5", "u", dims=["x"]) as found:
        np.testing.assert_array_equal(found["u"], [10.5, 11.0, np.nan, np.nan])
        found.to_netcdf(tmp_path / "again.nc", engine="h5netcdf")
    with open_fields(tmp_path / "again.nc", "u") as found:
        np.testing.assert_array_equal(found["u"], [10.5, 11.0, np.nan, np.nan])


def test_plain_hdf5_gets_its_dims_by_name(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["u"] = np.arange(24.0).reshape(6, 2, 2)
        file["time"] = np.arange(6.0)
        file["mask"] = np.ones((2, 2))
    dims = {"u": ["time", "y", "x"], "mask": ["y", "x"]}
    for given_dims in (dims, ["time", "y", "x"]):
        with open_fields(tmp_path / "a.h5", "u", dims=given_dims) as found:
            assert found["u"].dims == ("time", "y", "x")
            assert found["time"].values.tolist() == list(range(6))
    with pytest.raises(DataError, match="do not fit its shape"):
        open_fields(tmp_path / "a.h5", "u", dims={"u": ["time"]})
    with open_fields(tmp_path / "a.h5", "u") as found, pytest.raises(DataError, match="no time"):
        time_dim(found["u"])


@pytest.mark.parametrize("calendar", ["noleap", "360_day", "proleptic_gregorian"])
def test_calendars_round_trip(tmp_path, calendar):
    times = [cftime.datetime(2001, m, 1, calendar=calendar) for m in (1, 2, 3)]
    if calendar == "proleptic_gregorian":
        times = TIMES[:3]
    data = xr.Dataset({"u": ("time", [1.0, 2.0, 4.0])}, coords={"time": times})
    with open_fields(write_fields(data, tmp_path / "a.nc"), "u") as found:
        assert (found["time"].values == data["time"].values).all()


def test_files_join_along_time_in_order(dataset, tmp_path):
    pytest.importorskip("dask")
    write_fields(dataset.isel(time=slice(3, 6)), tmp_path / "a1.nc")
    write_fields(dataset.isel(time=slice(0, 3)), tmp_path / "a2.nc")
    with open_fields(tmp_path / "a*.nc", "sst") as found:
        xr.testing.assert_equal(found["sst"].load(), dataset["sst"])
    with pytest.raises(DataError, match=r"a1\.nc and 1 more.*backward"):
        open_fields([tmp_path / "a1.nc"] * 2, "sst")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"variables": "sts"}, r"'sts' not found. Allowed: sst, ice. Fix: did you mean sst\?"),
        ({"variables": "sst", "units": {"sst": "K"}}, "unit 'degC', but 'K' is expected"),
        ({"path": "b.nc"}, "no such file. Fix: did you mean .*a.nc"),
        ({"path": "*.grib"}, "no file matches"),
        ({"path": "."}, "not a Zarr store"),
    ],
)
def test_what_cannot_be_opened_is_said(dataset, tmp_path, arguments, message):
    write_fields(dataset, tmp_path / "a.nc")
    path = tmp_path / arguments.get("path", "a.nc")
    rest = {k: v for k, v in arguments.items() if k != "path"}
    with pytest.raises(DataError, match=message):
        open_fields(path, **rest)


def test_text_is_no_field(tmp_path):
    path = write_fields(xr.Dataset({"s": ("x", ["a", "b"])}), tmp_path / "a.nc")
    with pytest.raises(DataError, match="not real numbers"):
        open_fields(path, "s")


@pytest.mark.parametrize(("order", "word"), [([0, 2, 1], "backward"), ([0, 0, 1], "repeats")])
def test_times_must_increase(dataset, tmp_path, order, word):
    path = write_fields(dataset.isel(time=order), tmp_path / "a.nc")
    with pytest.raises(DataError, match=word):
        open_fields(path, "sst")
    with pytest.raises(DataError, match="1 time step"):
        check_time(dataset["sst"][:1], min_steps=2)


@pytest.mark.parametrize(
    ("fill", "message"), [(np.nan, "all 120 values"), (3.0, "constant"), (np.inf, "infinite")]
)
def test_a_field_without_content_is_refused(dataset, fill, message):
    with pytest.raises(DataError, match=message):
        check_field(xr.full_like(dataset["sst"], fill))


def test_a_field_is_counted_in_blocks(dataset, monkeypatch):
    monkeypatch.setattr("scitoolkit.io.coordinates._BLOCK_BYTES", 300)
    field = dataset["sst"].copy()
    field[4] = np.nan
    found = check_field(field.transpose("lat", "lon", "time"))
    assert found.non_finite == 20
    assert found.empty_steps == (4,)
    assert found.maximum == float(field.max())


def test_dims_are_found_by_meaning(dataset):
    field = dataset["sst"].transpose("lon", "time", "lat")
    assert time_dim(field) == "time"
    assert spatial_dims(field) == ("lon", "lat")
    assert latitude_name(field) == "lat"
    plane = xr.DataArray(np.zeros((2, 2)), dims=("y", "x"), coords={"y": [0.0, 1.0]})
    assert latitude_name(plane) is None
    with pytest.raises(DataError, match=r"dim 'tim' not found.*did you mean time"):
        require_dims(field, ["tim"])


def test_a_full_disk_is_said_and_leaves_nothing(dataset, tmp_path, monkeypatch):
    def full(dataset, path):
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("scitoolkit.io.fields.write_netcdf", full)
    with pytest.raises(DataError, match="the disk is full"):
        write_fields(dataset, tmp_path / "a.nc")
    assert not list(tmp_path.iterdir())


def test_files_in_different_units_do_not_join(tmp_path):
    for i, unit in enumerate(("m/s", "m s-1", "km/h")):
        part = xr.Dataset(
            {"u": ("time", [1.0, 2.0], {"units": unit})}, {"time": [2 * i, 2 * i + 1]}
        )
        write_fields(part, tmp_path / f"{i}.nc")
    with open_fields([tmp_path / "0.nc", tmp_path / "1.nc"]) as joined:
        assert joined["u"].shape == (4,)
    with pytest.raises(DataError, match="unit 'km/h', but 'm/s'"):
        open_fields(str(tmp_path / "*.nc"))


def test_a_file_that_cannot_be_written_whole_does_not_crash_the_process(tmp_path):
    code = """
import resource, sys
import numpy as np, xarray as xr
from scitoolkit.core.errors import ScitoolkitError
from scitoolkit.core.processes import leave
from scitoolkit.io.fields import write_fields

resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, -1))
for size in (30, 30_000):
    try:
        write_fields(xr.Dataset({n: ("x", np.random.rand(size)) for n in "abc"}), "out.nc")
    except (ScitoolkitError, OSError) as error:
        print(error)
leave(1)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (1, "")
    assert done.stdout == f"out.nc: {os.strerror(errno.EFBIG)}\n"
    assert [file.name for file in tmp_path.iterdir()] == ["out.nc"]


def test_a_stream_that_cannot_be_written_whole_does_not_crash_the_process(tmp_path):
    code = """
import resource
import numpy as np, xarray as xr
from scitoolkit.core.processes import leave
from scitoolkit.io.formats.base import StreamedVariable
from scitoolkit.io.formats.hdf5 import NetCDF4Writer

resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, -1))
u = StreamedVariable(("x",), (60_000,), chunks=(1_000,))
writer = NetCDF4Writer(__import__("pathlib").Path("u.nc"), xr.Dataset(), {"u": u})
try:
    for start in range(0, 60_000, 1_000):
        writer.write("u", (slice(start, start + 1_000),), np.random.rand(1_000).astype("f4"))
    writer.finish()
except (OSError, RuntimeError):
    writer.discard()
    print("told")
leave(1)
"""
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "told\n"), done.stderr
    assert not list(tmp_path.iterdir())


def part(first, units="s", **scalars):
    times = ("time", first + np.arange(4.0), {"units": units} if units else {})
    values = ("time", "x"), np.zeros((4, 3))
    return xr.Dataset({"u": values, **scalars}, {"time": times, "x": ("x", [1.0, 2.0, 3.0])})


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda d: d.assign_coords(time=("time", d.time.values, {"units": "ms"})), "unit 'ms'"),
        (lambda d: d.assign_coords(x=("x", d.x.values, {"units": "km"})), "unit 'km'"),
        (lambda d: d.assign(nu=0.2), "nu is 0.2"),
        (lambda d: d.assign_coords(number=3), "number is 3"),
        (lambda d: d.isel(x=slice(None, None, -1)), "do not fit together"),
        (
            lambda d: d.assign_coords(time=np.datetime64("2001-01-01", "ns") + np.arange(4)),
            "do not fit together",
        ),
    ],
)
def test_only_parts_of_one_record_are_joined(tmp_path, change, match):
    pytest.importorskip("dask")
    first, second = (part(t, nu=0.1).assign_coords(number=2) for t in (0.0, 4.0))
    first.x.attrs["units"] = second.x.attrs["units"] = "m"
    paths = [tmp_path / "a.nc", tmp_path / "b.nc"]
    first.to_netcdf(paths[0], engine="h5netcdf")
    second.to_netcdf(paths[1], engine="h5netcdf")
    with open_fields(paths) as whole:
        assert whole.sizes["time"] == 8
    change(second).to_netcdf(paths[1], engine="h5netcdf")
    with pytest.raises(DataError, match=match):
        open_fields(paths)


def test_coordinates_are_written_without_a_fill_value(tmp_path):
    values = xr.DataArray(np.array([[0.0, np.nan]]), dims=("y", "x"), coords={"x": [0.5, 1.5]})
    path = write_fields(xr.Dataset({"u": values}), tmp_path / "a.nc")
    with h5py.File(path) as file:
        assert "_FillValue" not in file["x"].attrs
        assert np.isnan(file["u"].attrs["_FillValue"])
