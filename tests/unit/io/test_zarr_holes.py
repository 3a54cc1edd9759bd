"""Chunks that are not in a store are refused by rows; they are never read as fill values."""

import numpy as np
import pytest
import xarray as xr

from scitoolkit import open_campaign
from scitoolkit.core.errors import DataError

zarr = pytest.importorskip("zarr")
VALUES = np.random.default_rng(0).random((30, 8, 10)).astype("f4") + 5


def store(path, version, sharded=False, **settings):
    group = zarr.open_group(path, mode="w", zarr_format=version)
    names = {"dimension_names": ["time", "y", "x"]} if version == 3 else {}
    shards = {"shards": (10, 8, 10)} if sharded else {}
    array = group.create_array(
        "u", shape=VALUES.shape, dtype="f4", chunks=(5, 4, 5), **names, **shards, **settings
    )
    if version == 2:
        array.attrs["_ARRAY_DIMENSIONS"] = ["time", "y", "x"]
    array[:] = VALUES
    return sorted(
        f for f in (path / "u").rglob("*") if f.is_file() and not f.name.startswith((".z", "zarr"))
    )


@pytest.mark.parametrize(("version", "sharded"), [(2, False), (3, False), (3, True)])
@pytest.mark.parametrize("number", [0, 1, -1])
def test_a_lost_chunk_is_named(tmp_path, version, sharded, number):
    path = tmp_path / "run.zarr"
    files = store(path, version, sharded, fill_value=0)
    files[number].unlink()
    with pytest.raises(DataError, match="no chunk in the store"):
        list(open_campaign(path, ["u"]).loader(batch_size=4))


def test_whole_stores_and_declared_sparse_ones_are_read(tmp_path):
    version = 3  # in format 2 a fill value is a missing value
    path = tmp_path / "run.zarr"
    files = store(path, version, fill_value=0)
    assert len(list(open_campaign(path, ["u"]).loader(batch_size=4)))
    files[0].unlink()
    zarr.open_group(path, mode="a", zarr_format=version)["u"].attrs["sparse"] = True
    assert len(list(open_campaign(path, ["u"]).loader(batch_size=4)))


def test_stores_of_xarray_are_read(tmp_path):
    xr.Dataset({"u": (("time", "y", "x"), VALUES)}).to_zarr(tmp_path / "x.zarr", consolidated=False)
    assert len(list(open_campaign(tmp_path / "x.zarr", ["u"]).loader(batch_size=4)))
