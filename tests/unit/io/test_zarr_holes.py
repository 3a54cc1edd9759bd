"""Chunks that are not in a store are refused by rows; they are never read as fill values."""

import itertools

import numpy as np
import pytest
import xarray as xr

from scitoolkit import open_campaign
from scitoolkit.core.errors import DataError
from scitoolkit.io.fields import open_fields

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


def shards(path, shape, shard, chunk, written, **settings):
    """Write parts of a sharded array; all else was never written."""
    group = zarr.open_group(path, mode="w", zarr_format=3)
    names = ["time", "y", "x"][: len(shape)]
    array = group.create_array(
        "u", shape=shape, dtype="f4", chunks=chunk, shards=shard, dimension_names=names, **settings
    )
    for part in written:
        array[part] = 3.0


WHOLE = (slice(None),) * 3


@pytest.mark.parametrize("shard", [(10, 8, 10), (20, 8, 10), (10, 16, 20)])
@pytest.mark.parametrize("fill", [0, 7])
@pytest.mark.parametrize("compressors", [None, "auto"])
@pytest.mark.parametrize("rows", [(0, 5), (5, 10), (15, 20)])
def test_an_inner_chunk_that_was_never_written_is_named(tmp_path, shard, fill, compressors, rows):
    at = slice(*rows)
    rest = [(slice(0, rows[0]), *WHOLE[:2]), (slice(rows[1], 20), *WHOLE[:2])]
    written = [*(p for p in rest if p[0].start < p[0].stop), (at, slice(0, 4))]
    settings = {"fill_value": fill, "compressors": compressors}
    shards(tmp_path / "a.zarr", (20, 8, 10), shard, (5, 4, 5), written, **settings)
    with pytest.raises(DataError, match=f"rows {rows[0]} to {rows[1] - 1}"):
        list(open_campaign(tmp_path / "a.zarr", ["u"]).loader(batch_size=4))


@pytest.mark.parametrize("shape", [(20, 8, 10), (17, 7, 9), (21, 9, 3)])
@pytest.mark.parametrize("location", ["start", "end"])
def test_shards_that_end_beyond_the_array_are_whole(tmp_path, shape, location):
    from zarr.codecs import BytesCodec, Crc32cCodec, ShardingCodec

    group = zarr.open_group(tmp_path / "a.zarr", mode="w", zarr_format=3)
    codec = ShardingCodec(
        chunk_shape=(5, 4, 5),
        index_location=location,
        index_codecs=[BytesCodec(), *([Crc32cCodec()] if location == "end" else [])],
    )
    array = group.create_array(
        "u",
        shape=shape,
        dtype="f4",
        chunks=(10, 8, 10),
        serializer=codec,
        compressors=None,
        fill_value=0,
        dimension_names=["time", "y", "x"],
    )
    array[:] = 3.0
    found = list(open_campaign(tmp_path / "a.zarr", ["u"]).loader(batch_size=4))
    assert all((batch["x"] == 3).all() for batch in found)


def test_other_files_in_a_store_hide_no_hole(tmp_path):
    files = store(tmp_path / "a.zarr", 3, fill_value=0)
    files[2].unlink()
    for name in (".DS_Store", "notes.txt", "c.tmp"):
        (tmp_path / "a.zarr" / "u" / name).write_text("x")
    with pytest.raises(DataError, match="no chunk in the store"):
        list(open_campaign(tmp_path / "a.zarr", ["u"]).loader(batch_size=4))


def absent(index, path, start, shape):
    with path.open("rb") as file:
        return index.absent(file, start, shape)


@pytest.mark.parametrize("seed", range(5))
def test_random_holes_in_shards_are_all_told(tmp_path, seed):
    from scitoolkit.io.loader.zarr_shards import ShardIndex

    draw = np.random.default_rng(seed)
    grid = list(itertools.product(range(4), range(2), range(2)))
    lost = {grid[i] for i in draw.choice(len(grid), 5, replace=False)}
    written = [
        tuple(slice(n * c, (n + 1) * c) for n, c in zip(at, (5, 4, 5), strict=True))
        for at in grid
        if at not in lost
    ]
    path = tmp_path / "a.zarr"
    shards(path, (20, 8, 10), (10, 8, 10), (5, 4, 5), written, fill_value=0)
    array = zarr.open_group(path, mode="r")["u"]
    index = ShardIndex.of(array, path / "u")
    found = {
        tuple(part.start // c for part, c in zip(hole, (5, 4, 5), strict=True))
        for n in range(2)
        if (path / "u" / f"c/{n}/0/0").exists()
        for hole in absent(index, path / "u" / f"c/{n}/0/0", (10 * n, 0, 0), array.shape)
    }
    assert found == lost


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("lost", [True, False])
def test_absent_chunks_of_missing_values_are_told_where_others_have_them(
    tmp_path, caplog, version, lost
):
    land = VALUES.copy()
    land[:, :4] = np.nan  # never written by xarray
    data = xr.Dataset({"u": (("time", "y", "x"), land)})
    data.to_zarr(
        tmp_path / "x.zarr",
        zarr_format=version,
        consolidated=False,
        encoding={"u": {"chunks": (5, 4, 10)}},
    )
    chunk = "2.1.0" if version == 2 else "c/2/1/0"
    if lost:
        (tmp_path / "x.zarr" / "u" / chunk).unlink()
    with open_fields(tmp_path / "x.zarr") as fields:
        assert np.isnan(fields["u"].values[10:15]).all() == lost
    assert ("1 chunks are not in the store, the first at row 10" in caplog.text) == lost
    caplog.clear()
    open_campaign(tmp_path / "x.zarr", ["u"]).dataset(0)["u"].load()
    assert ("the first at row 10" in caplog.text) == lost
