"""Compressed files through xarray: what was there before, decoded as far as it is used."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from scitoolkit.compression import Bound, Options, compress, regions
from scitoolkit.compression.files import FilePlan, compress_file
from scitoolkit.compression.xarray_backend import CompressedEntrypoint
from scitoolkit.core.errors import DataError


def dataset() -> xr.Dataset:
    rng = np.random.default_rng(2)
    t = np.cumsum(rng.normal(size=(6, 20, 30)), axis=2).astype("f4")
    t[:, 3, 4] = np.nan
    return xr.Dataset(
        {"t": (("time", "y", "x"), t, {"units": "K"}), "count": ("y", np.arange(20))},
        {
            "time": np.arange("2020-01", "2020-07", dtype="M8[M]").astype("M8[ns]"),
            "x": np.linspace(0, 1, 30),
        },
        {"title": "a run"},
    )


@pytest.fixture
def compressed(tmp_path):
    dataset().to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    plan = FilePlan(Bound("abs", 1e-2), {}, Options(objective="speed"))
    compress_file(tmp_path / "a.nc", tmp_path / "b.h5", plan)
    return tmp_path / "b.h5"


def test_variables_coordinates_and_attributes_are_those_of_the_original(compressed):
    expected = dataset()
    with xr.open_dataset(compressed, engine=CompressedEntrypoint) as found:
        assert set(found.variables) == set(expected.variables)
        assert found.t.dims == expected.t.dims
        assert (found.attrs["title"], found.t.attrs["units"]) == ("a run", "K")
        assert (found.time == expected.time).all()
        difference = np.abs(found.t - expected.t)
        assert float(difference.max()) <= 1e-2
        assert (np.isnan(found.t) == np.isnan(expected.t)).all()


@pytest.mark.parametrize(
    "key",
    [
        (2,),
        (slice(1, 5, 2), 3),
        (slice(None, None, -1), slice(4, 4)),
        (-1, slice(15, 2, -3), 7),
        (slice(5, 0, -2), slice(None), [1, 5, 2]),
    ],
)
def test_selections_are_those_of_the_whole_array(compressed, key):
    with xr.open_dataset(compressed, engine=CompressedEntrypoint) as found:
        assert np.array_equal(found.t[key].values, found.t.load().values[key], equal_nan=True)


def test_other_readers_see_every_dimension_under_its_name(compressed):
    with xr.open_dataset(compressed, engine="h5netcdf") as found:
        assert dict(found.sizes)["time"] == 6
        assert found["t.header"].dims == ("time", "y", "x")
        assert not any("phony" in str(dim) for dim in found.sizes)


def test_opening_decodes_nothing(compressed, monkeypatch):
    def refuse(*_):
        raise AssertionError("decoded")

    monkeypatch.setattr(regions, "_part", refuse)
    with xr.open_dataset(compressed, engine=CompressedEntrypoint) as found:
        assert found.t.shape == (6, 20, 30)
        with pytest.raises(AssertionError, match="decoded"):
            found.t[0].load()


def test_a_stream_of_one_array_opens_and_other_files_are_refused(tmp_path):
    x = np.linspace(0, 1, 600, dtype="f4").reshape(20, 30)
    (tmp_path / "x.sci").write_bytes(compress(x, abs=1e-3))
    with xr.open_dataset(tmp_path / "x.sci", engine=CompressedEntrypoint) as found:
        assert float(np.abs(found["x"] - x).max()) <= 1e-3
    dataset().to_netcdf(tmp_path / "a.nc", engine="h5netcdf")
    with pytest.raises(DataError, match="no variable compressed"):
        xr.open_dataset(tmp_path / "a.nc", engine=CompressedEntrypoint)


def test_masked_points_are_nan(tmp_path):
    x = np.ma.array(np.linspace(0, 1, 4000, dtype="f4").reshape(40, 100), fill_value=1e20)
    x[3:5] = np.ma.masked
    (tmp_path / "x.sci").write_bytes(compress(x, abs=1e-3))
    with xr.open_dataset(tmp_path / "x.sci", engine=CompressedEntrypoint) as opened:
        assert (np.isnan(opened["x"].values) == x.mask).all()
