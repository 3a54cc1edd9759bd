"""Copies to sharded Zarr hold exactly the stored values, or are not there."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
import zarr
from typer.testing import CliRunner

from scitoolkit.cli.main import app
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.io.fields import open_fields
from scitoolkit.io.rechunk import copy_to_shards

ENCODINGS = {
    "packed": {"dtype": "i2", "scale_factor": 0.01, "add_offset": 280.0, "_FillValue": -32768},
    "filled": {"dtype": "f4", "_FillValue": 1e20},
    "big": {"dtype": ">f8"},
    "whole": {"dtype": "i4"},
    "compressed": {"zlib": True, "chunksizes": (30, 1, 9)},
}


def stored(folder, kind, rows=30):
    u = np.random.default_rng(0).normal(280, 5, (rows, 8, 9))
    if kind in ("packed", "filled"):
        u[:, 2, 3] = np.nan
    if kind == "whole":
        u = np.rint(u).astype("i4")
    days = {"units": "days since 2000-01-01", "calendar": "noleap"}
    data = xr.Dataset(
        {"u": (("time", "y", "x"), u, {"units": "K"}), "h": (("y", "x"), u[0]), "n": ((), 3)},
        {"time": ("time", np.arange(rows), days), "y": ("y", np.arange(8.0), {"units": "m"})},
    )
    path = folder / "a.nc"
    data.to_netcdf(path, engine="h5netcdf", encoding={"u": ENCODINGS[kind]})
    return path


@pytest.mark.parametrize("kind", ENCODINGS)
@pytest.mark.parametrize("shard_bytes", [1, 5000, 2**26])
def test_a_copy_holds_what_is_stored(tmp_path, kind, shard_bytes):
    path = stored(tmp_path, kind)
    target = copy_to_shards(path, tmp_path / "b.zarr", shard_bytes=shard_bytes)
    with open_fields(path) as a, open_fields(target) as b:
        xr.testing.assert_equal(a, b)
        assert b.u.attrs["units"] == "K"
        assert b.time.dtype == a.time.dtype
    with xr.open_dataset(path, decode_cf=False) as raw:
        array = zarr.open_group(target, mode="r")["u"]
        assert np.array_equal(np.asarray(array[...]), raw.u.values)
        assert array.chunks == (1, 8, 9)
        row = raw.u.values[0].nbytes
        assert array.shards[0] == min(30, max(1, shard_bytes // row))


def test_a_target_that_exists_is_refused(tmp_path):
    path = stored(tmp_path, "whole")
    (tmp_path / "b.zarr").mkdir()
    with pytest.raises(ConfigError, match="already exists"):
        copy_to_shards(path, tmp_path / "b.zarr")


def test_values_that_were_never_written_are_not_copied(tmp_path):
    import h5py

    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("u", (6, 4, 4), chunks=(2, 4, 4), dtype="f4")[:4] = 1
    with pytest.raises(DataError):
        copy_to_shards(tmp_path / "a.h5", tmp_path / "b.zarr")
    assert [p.name for p in tmp_path.iterdir()] == ["a.h5"]


def test_a_store_that_gives_other_values_has_no_name(tmp_path, monkeypatch):
    path = stored(tmp_path, "whole")
    read = zarr.Array.__getitem__
    monkeypatch.setattr(
        zarr.Array, "__getitem__", lambda self, key: np.asarray(read(self, key)) + 1
    )
    with pytest.raises(DataError, match="differ when they are read again"):
        copy_to_shards(path, tmp_path / "b.zarr")
    assert [p.name for p in tmp_path.iterdir()] == ["a.nc"]


def test_the_command(tmp_path):
    path = stored(tmp_path, "packed")
    done = CliRunner().invoke(app, ["cp", str(path), str(tmp_path / "b.zarr")])
    assert done.exit_code == 0
    assert (tmp_path / "b.zarr" / "zarr.json").is_file()
