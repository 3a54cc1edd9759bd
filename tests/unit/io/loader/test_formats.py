"""Every format and filter gives the numbers that its own library gives."""

from __future__ import annotations

import multiprocessing
import pickle

import h5py
import hdf5plugin
import numpy as np
import pytest
import xarray as xr
import zarr

from scitoolkit.core.errors import DataError
from scitoolkit.io.loader import FileSource, PlannedLoader, open_source
from scitoolkit.io.loader.filters import DEFLATE, FLETCHER32, SHUFFLE, fletcher32, shuffle, undo
from scitoolkit.io.loader.hdf5 import LibraryReader
from scitoolkit.io.loader.rows import ChunkReader, StridedReader

N = 40
U = np.cumsum(np.random.default_rng(0).normal(size=(N, 4, 6)), axis=2).astype("f4")

COMPRESSED = {
    "gzip": {"compression": "gzip"},
    "gzip_shuffle": {"compression": "gzip", "shuffle": True},
    "checked": {"fletcher32": True},
    "all": {"compression": "gzip", "shuffle": True, "fletcher32": True},
    "lzf": {"compression": "lzf", "shuffle": True},
    "scaled": {"scaleoffset": 5},
    "blosc": dict(hdf5plugin.Blosc()),
    "blosc2": dict(hdf5plugin.Blosc2()),
    "zstd": dict(hdf5plugin.Zstd()),
    "bitshuffle": dict(hdf5plugin.Bitshuffle()),
    "sz3": dict(hdf5plugin.SZ3(absolute=1e-3)),
    "zfp": dict(hdf5plugin.Zfp(accuracy=1e-3)),
}
OWN = {"gzip", "gzip_shuffle", "checked", "all"}


def _reader(source: FileSource):
    return next(iter(source.rows.values())).readers[0]


@pytest.mark.parametrize("name", COMPRESSED)
def test_compressed_chunks(name, tmp_path):
    path = tmp_path / "u.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("u", data=U, chunks=(7, 4, 5), **COMPRESSED[name])
        expected = file["u"][:]
    source = open_source(path, {"x": "u"}, crop={"dim_2": (1, 6)})
    assert isinstance(_reader(source), ChunkReader if name in OWN else LibraryReader)
    loader = PlannedLoader(source, 6, buffer=2000, shuffle=False)
    got = np.concatenate([batch["x"].numpy() for batch in loader])
    assert np.array_equal(got, expected[:, :, 1:])


@pytest.mark.parametrize("dtype", [">f8", "<i2", ">u4", "f4", "c8", "u1", "f2"])
@pytest.mark.parametrize("chunks", [None, (7, 4, 5)])
def test_types_and_byte_orders_behind_a_user_block(dtype, chunks, tmp_path):
    values = (U * 10).astype(dtype)
    with h5py.File(tmp_path / "u.h5", "w", userblock_size=512) as file:
        file.create_dataset("u", data=values, chunks=chunks)
    source = open_source(tmp_path / "u.h5", {"x": "u"})
    assert isinstance(_reader(source), ChunkReader if chunks else StridedReader)
    for batch in PlannedLoader(source, N, shuffle=False):
        assert np.array_equal(batch["x"].numpy(), values)


def test_a_chunk_may_skip_a_filter(tmp_path):
    raw = np.arange(8, dtype="<i4")
    with h5py.File(tmp_path / "u.h5", "w") as file:
        data = file.create_dataset("u", (16,), "<i4", chunks=(8,), compression="gzip", shuffle=True)
        data[8:] = raw
        data.id.write_direct_chunk((0,), raw.tobytes(), filter_mask=0b11)
    source = open_source(tmp_path / "u.h5", {"x": "u"})
    assert isinstance(_reader(source), ChunkReader)
    assert source.read(np.arange(16))["x"].tolist() == [*range(8), *range(8)]


def test_virtual_external_and_compact_data_go_through_the_library(tmp_path):
    for i in range(2):
        with h5py.File(tmp_path / f"part{i}.h5", "w") as file:
            file["u"] = U[i * 20 : i * 20 + 20]
    layout = h5py.VirtualLayout(shape=U.shape, dtype="f4")
    for i in range(2):
        layout[i * 20 : i * 20 + 20] = h5py.VirtualSource(f"part{i}.h5", "u", shape=(20, 4, 6))
    with h5py.File(tmp_path / "u.h5", "w") as file:
        file.create_virtual_dataset("virtual", layout)
        outside = [(str(tmp_path / "raw.bin"), 0, U.nbytes)]
        file.create_dataset("external", data=U, external=outside)
        small = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        small.set_layout(h5py.h5d.COMPACT)
        space = h5py.h5s.create_simple(U.shape)
        compact = h5py.h5d.create(file.id, b"compact", h5py.h5t.NATIVE_FLOAT, space, small)
        compact.write(h5py.h5s.ALL, h5py.h5s.ALL, U)
    for name in ("virtual", "external", "compact"):
        source = open_source(tmp_path / "u.h5", {"x": name})
        assert isinstance(_reader(source), LibraryReader)
        assert np.array_equal(source.read(np.arange(N))["x"], U)


@pytest.mark.parametrize("record", [[], ["time"]])
def test_classic_netcdf_with_packing(record, tmp_path):
    packed = np.random.default_rng(1).integers(0, 99, (N, 3)).astype("i2")
    packing = {"scale_factor": 0.5, "add_offset": 2.0, "_FillValue": np.int16(3)}
    dataset = xr.Dataset({"u": (("time", "y", "x"), U), "q": (("time", "c"), packed, packing)})
    path = tmp_path / "u.nc"
    dataset.to_netcdf(path, format="NETCDF3_64BIT", engine="scipy", unlimited_dims=record)
    source = open_source(path, {"x": "u", "q": "q"}, "time", allow_nan=True, crop={"y": (1, 3)})
    assert isinstance(_reader(source), StridedReader)
    found = source.read(np.array([39, 0, 7]))
    assert np.array_equal(found["x"], U[[39, 0, 7], 1:3])
    with xr.open_dataset(path) as opened:
        assert np.allclose(found["q"], opened["q"].values[[39, 0, 7]], equal_nan=True)


WRITERS = {
    "a.nc": lambda dataset, path: dataset.to_netcdf(path, engine="h5netcdf"),
    "a3.nc": lambda dataset, path: dataset.to_netcdf(path, engine="scipy", format="NETCDF3_64BIT"),
    "v2.zarr": lambda dataset, path: dataset.to_zarr(path, zarr_format=2),
    "v3.zarr": lambda dataset, path: dataset.to_zarr(path, zarr_format=3),
}


@pytest.mark.filterwarnings("ignore:Consolidated metadata", "ignore:variable 'several' has")
@pytest.mark.parametrize("name", WRITERS)
def test_missing_values_and_signs_are_those_of_xarray(name, tmp_path):
    """Where xarray itself put them: attributes, an array's own fill value, base64."""
    values = np.arange(4.0 * N).reshape(N, 4)
    values[5, 2] = np.nan
    high = (values[:, :2] + 40_000).astype("u2").view("i2")
    dims = ("time", "c")
    dataset = xr.Dataset(
        {
            "packed": (dims, values),
            "floats": (dims, values.astype("f4")),
            "doubles": (dims, values),
            "whole": (dims, np.arange(4 * N, dtype="i4").reshape(N, 4)),
            "unsigned": (("time", "two"), high, {"_Unsigned": "true", "scale_factor": 0.5}),
            "flagged": (
                ("time", "two"),
                high.copy(),
                {"_Unsigned": "true", "_FillValue": high[3, 1]},
            ),
        }
    )
    dataset["packed"].encoding = {
        "dtype": "i2",
        "scale_factor": 0.5,
        "add_offset": 3.0,
        "_FillValue": np.int16(-32768),
    }
    dataset["floats"].encoding = {"_FillValue": np.float32(1e20)}
    dataset["doubles"].encoding = {"_FillValue": -999.0}
    if name == "a.nc":
        dataset["several"] = (dims, values, {"missing_value": [3.0, 7.0]})
    WRITERS[name](dataset, tmp_path / name)
    names = {str(n): str(n) for n in dataset}
    source = open_source(tmp_path / name, names, "time", allow_nan=True)
    found = source.read(np.arange(N))
    with xr.open_dataset(tmp_path / name) as opened:
        for variable in names:
            assert np.allclose(found[variable], opened[variable].values, equal_nan=True), variable
    assert np.isnan(found["packed"][5, 2])
    assert found["unsigned"].min() >= 20_000


def test_netcdf4_has_names_for_dims_and_units(tmp_path):
    dataset = xr.Dataset({"u": (("time", "y", "x"), U, {"units": "m s-1"})})
    dataset.to_netcdf(
        tmp_path / "u.nc",
        engine="h5netcdf",
        encoding={"u": {"zlib": True, "chunksizes": (7, 4, 5)}},
    )
    source = open_source(tmp_path / "u.nc", {"x": "u"}, sample_dim="time", crop={"x": (2, 4)})
    assert source.units == {"u": "m s-1"}
    assert np.array_equal(source.read(np.arange(N))["x"], U[:, :, 2:4])


@pytest.mark.parametrize(("version", "shards"), [(2, None), (3, None), (3, (16, 4, 6))])
@pytest.mark.parametrize("through", ["tensorstore", "zarr"])
def test_zarr(version, shards, through, tmp_path, monkeypatch):
    from scitoolkit.io.loader import zarr as module

    real = module.importlib.util.find_spec
    if through == "zarr":
        hidden = lambda name: None if name == "tensorstore" else real(name)  # noqa: E731
        monkeypatch.setattr(module.importlib.util, "find_spec", hidden)
    group = zarr.open_group(tmp_path / "u.zarr", mode="w", zarr_format=version)
    options = {"shards": shards} if shards else {}
    array = group.create_array("u", shape=U.shape, chunks=(8, 4, 3), dtype="f4", **options)
    array[:] = U
    source = open_source(tmp_path / "u.zarr", {"x": "u"}, crop={"dim_1": (1, 3)})
    loader = PlannedLoader(source, 8, buffer=0, shuffle=False, threads=2)
    assert np.array_equal(np.concatenate([b["x"].numpy() for b in loader]), U[:, 1:3])


def _sum_in_child(source, queue):
    queue.put(float(source.read(np.arange(N))["x"].astype("f8").sum()))


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_source_goes_into_other_processes(method, tmp_path):
    with h5py.File(tmp_path / "u.h5", "w") as file:
        file.create_dataset("own", data=U, chunks=(7, 4, 6), compression="gzip")
        file.create_dataset("library", data=U, chunks=(7, 4, 6), compression="lzf")
    context = multiprocessing.get_context(method)
    for name in ("own", "library"):
        source = open_source(tmp_path / "u.h5", {"x": name})
        source.read(np.arange(3))
        queue = context.Queue()
        child = context.Process(target=_sum_in_child, args=(source, queue))
        child.start()
        assert queue.get(timeout=60) == float(U.astype("f8").sum())
        child.join()
    again = pickle.loads(pickle.dumps(source))
    assert again.describe() == source.describe()


def test_offsets_beyond_two_gibi(tmp_path):
    """The file is sparse: 2 GiB of values that were never written lie before those that were."""
    rows, width = 2100, 1 << 20
    with h5py.File(tmp_path / "u.h5", "w") as file:
        data = file.create_dataset("u", (rows, width), "u1", chunks=(1, width))
        data[0] = 1
        whole = file.create_dataset("w", (rows, width), "u1")
        whole[rows - 1, -1] = 7
        data[rows - 1] = 9
    source = open_source(
        tmp_path / "u.h5", {"x": "u", "w": "w"}, crop={"dim_1": (width - 2, width)}
    )
    assert int(_reader(source).table.offset.max()) > 2**31
    assert source.read(np.array([rows - 1]))["x"].tolist() == [[9, 9]]
    assert source.read(np.array([rows - 1]).astype(np.int32) * 0 + rows - 1)["x"][0, 0] == 9
    w = open_source(tmp_path / "u.h5", {"w": "w"}).read(np.array([rows - 1]))["w"]
    assert w[0, -1] == 7


def test_filters_undo_what_they_did():
    values = np.arange(37, dtype="<i4").view("u1")
    for data in (values, values[:35], values[:3], values[:0]):
        shuffled = shuffle(data, 4)
        assert undo(shuffled, [SHUFFLE], 0, 4, len(data)).tobytes() == data.tobytes()
        first, second = fletcher32(data)
        checked = np.concatenate([data, np.array([second << 16 | first], "<u4").view("u1")])
        assert undo(checked, [FLETCHER32], 0, 4, len(data)).tobytes() == data.tobytes()
    with pytest.raises(ValueError, match="deflate"):
        undo(values, [DEFLATE], 0, 4, 148)
    with pytest.raises(ValueError, match="decoded to 148 bytes, expected 3"):
        undo(values, [], 0, 4, 3)


@pytest.mark.parametrize("attrs", [{"scale_factor": 0.5}, {"add_offset": 3.0}])
def test_packed_doubles_are_unpacked_for_any_rows(attrs, tmp_path):
    """Physical values have the stored dtype, but are not the stored values."""
    path = tmp_path / "u.nc"
    dataset = xr.Dataset({"u": (("time", "x"), np.arange(12.0).reshape(6, 2), attrs)})
    dataset.to_netcdf(path, engine="h5netcdf")
    source = open_source(path, {"x": "u"}, "time")
    with xr.open_dataset(path) as opened:
        for rows in (np.arange(6), np.array([2]), np.array([0, 5])):
            assert np.array_equal(source.read(rows)["x"], opened["u"].values[rows])


def test_files_in_different_units_are_refused(tmp_path):
    for i, unit in enumerate(("m/s", "m s-1", "", "km/h")):
        attrs = {"units": unit} if unit else {}
        dataset = xr.Dataset({"u": (("time", "x"), U[:4, 0, :], attrs)})
        dataset.to_netcdf(tmp_path / f"{i}.nc", engine="h5netcdf")
    paths = [tmp_path / f"{i}.nc" for i in range(4)]
    assert len(open_source(paths[:3], {"x": "u"}, "time")) == 12
    with pytest.raises(DataError, match=r"3\.nc: variable u: unit 'km/h'"):
        open_source(paths, {"x": "u"}, "time")
