"""What nobody wrote is refused on every road into a file; what is whole is read."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

from scitoolkit import open_campaign, open_fields
from scitoolkit.core.errors import DataError
from scitoolkit.io.formats import StreamedVariable
from scitoolkit.io.formats.zarr import Zarr

_FILE = Path(__file__).parents[3] / "benchmarks" / "io" / "holes.py"
_SPEC = importlib.util.spec_from_file_location("benchmark_holes", _FILE)
holes = importlib.util.module_from_spec(_SPEC)
sys.modules["benchmark_holes"] = holes
_SPEC.loader.exec_module(holes)


def test_random_holes_are_named_and_whole_files_read():
    counts = holes.count(3 * len(holes.WRITERS), seed=1)
    assert counts["holes"] == 3 * len(holes.WRITERS)
    assert counts["wrong"] == []


@pytest.mark.parametrize("writer", holes.WRITERS, ids=lambda w: w.__name__)
def test_whole_files_deliver_what_was_written(tmp_path, writer):
    case = writer(np.random.default_rng(7), tmp_path, False)
    for read in holes.ROADS.values():
        assert holes.outcome(case, read) == ""


def partly_written(path, rows=12, chunk=3):
    with h5py.File(path, "w") as file:
        made = file.create_dataset("u", (rows, 4), "f4", chunks=(chunk, 4))
        made[: rows - chunk] = 1.0
        file["v"] = np.ones((rows, 4), "f4")
        for dim, size in (("time", rows), ("x", 4)):
            file[dim] = np.arange(float(size))
            file[dim].make_scale(dim)
        for name in "uv":
            for axis, dim in enumerate(("time", "x")):
                file[name].dims[axis].attach_scale(file[dim])
    return path


@pytest.mark.parametrize("chunks", [None, {"time": 3}, {}])
def test_the_rest_of_a_file_is_read(tmp_path, chunks):
    path = partly_written(tmp_path / "run.h5")
    with open_fields(path, chunks=chunks) as data:
        assert (data["v"].values == 1).all()
        if chunks != {}:
            assert (data["u"][:9].values == 1).all()
            assert (data["u"][8:2:-2, [3, 0]].values == 1).all()
            assert float(data["u"][4, 2]) == 1
        for part in (slice(None), slice(8, 10), 11, slice(None, None, -1), [1, 9]):
            with pytest.raises(DataError, match="rows 9 to 11 were never written"):
                np.asarray(data["u"][part].values)
        with pytest.raises(DataError, match="rows 9 to 11"):
            data.isel(x=1).load()


def test_a_fill_value_that_the_file_states_is_missing(tmp_path):
    path = tmp_path / "run.nc"
    with h5py.File(path, "w") as file:
        made = file.create_dataset("u", (6, 4), "f4", chunks=(3, 4), fillvalue=-999)
        made[:3] = 1.0
        made.attrs["_FillValue"] = np.float32(-999)
    with open_fields(path) as data:
        assert np.isnan(data["u"].values[3:]).all()


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("rows", [1, 2, 5])
def test_times_that_zarr_leaves_out_because_they_are_0_are_read(tmp_path, version, rows):
    times = np.datetime64("2001-02-03", "ns") + np.arange(rows) * np.timedelta64(1, "D")
    data = xr.Dataset(
        {"u": (("time", "x"), np.ones((rows, 4), "f4"))}, {"time": times, "x": np.arange(4)}
    )
    encoding = {"time": {"chunks": (1,)}, "x": {"chunks": (1,)}}
    path = tmp_path / "a.zarr"
    data.to_zarr(path, zarr_format=version, consolidated=False, encoding=encoding)
    assert not (path / "time" / ("0" if version == 2 else "c/0")).exists()
    assert open_campaign(path, ["u"]).found.times.values.tolist() == times.tolist()
    with open_fields(path) as opened:
        assert opened["time"].values.tolist() == times.tolist()
        assert opened["x"].values.tolist() == [0, 1, 2, 3]


def test_zeros_that_our_writer_writes_are_in_the_store(tmp_path):
    path = tmp_path / "z.zarr"
    coordinates = xr.Dataset(coords={"x": np.zeros(1, "i4")})
    writer = Zarr.create(path, coordinates, {"u": StreamedVariable(("time", "x"), (3, 1), {})})
    writer.write("u", (slice(0, 3),), np.zeros((3, 1), "f4"))
    writer.finish()
    assert len(list(open_campaign(path, ["u"]).loader(batch_size=1, horizon=1)))
    with open_fields(path) as opened:
        assert (opened["u"].values == 0).all()


@pytest.mark.parametrize("dtype", ["i2", "i4", "f4", "f8"])
def test_the_fill_values_of_the_netcdf_library_are_refused(tmp_path, dtype):
    from scipy.io import netcdf_file

    fill = {"i2": -32767, "i4": -2147483647}.get(dtype, 9.969209968386869e36)
    for stated in (False, True):
        path = tmp_path / f"run{stated}.nc"
        with netcdf_file(path, "w") as file:
            file.createDimension("time", None)
            file.createDimension("x", 3)
            made = file.createVariable("u", np.dtype(dtype).char, ("time", "x"))
            values = np.arange(15).reshape(5, 3).astype(dtype)
            values[3, 1] = fill
            made[:] = values
            if stated:
                made._FillValue = np.array(fill, dtype)
        with open_fields(path) as data:
            if stated:
                assert np.isnan(data["u"].values[3, 1])
                continue
            with pytest.raises(DataError, match="rows 3 to 3 hold"):
                np.asarray(data["u"].values)
        with pytest.raises(DataError, match="rows 3 to 3 hold"):
            list(open_campaign(path, ["u"]).loader(batch_size=2))
