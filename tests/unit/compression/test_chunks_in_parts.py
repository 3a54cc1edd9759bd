"""Chunks written row by row: every value stays within the bound of what was written once."""

from __future__ import annotations

import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr

sys.path.insert(0, str(Path(__file__).parent))
import slow_decoder

from scitoolkit.compression.native import library
from scitoolkit.compression.native.library import ChunkExtras
from scitoolkit.compression.native.plugin import filter_options, install
from scitoolkit.compression.numcodecs_codec import InterpolationCodec
from scitoolkit.core.errors import DataError
from scitoolkit.testing.codec import smooth_field

LOSSLESS, ROUNDED = 3, 6
ENDS = {"rows": range(1, 17), "uneven": (3, 4, 11, 16), "backwards": range(16, 0, -1)}


def parts_of(order):
    """Return the rows of each write."""
    ends = list(ENDS[order])
    if order == "backwards":
        return [slice(end - 1, end) for end in ends]
    return [slice(first, end) for first, end in zip([0, *ends], ends, strict=False)]


def worst(written, read, bound, relative):
    """Return the largest error in bounds."""
    valid = np.isfinite(written) & (written != -999)
    x, y = written[valid].astype("f8"), read[valid].astype("f8")
    return float((np.abs(y - x) / (np.abs(x) if relative else 1)).max() / bound)


@pytest.mark.parametrize("order", ENDS)
@pytest.mark.parametrize("unwritten", [0.0, np.nan, -999.0, 9.969209968386869e36])
@pytest.mark.parametrize(
    ("dtype", "shape", "scale", "bound", "relative"),
    [
        ("<f4", (16, 9, 10), 1, 1e-3, False),
        (">f4", (16,), 1, 1e-2, False),
        ("<f8", (16, 3, 4, 5), 1e30, 1e26, False),
        ("<f4", (16, 9, 10), 1e-30, 1e-36, False),
        ("<f4", (16, 9, 10), 1, 1e-7, False),
        (">f8", (16, 9, 10), 1, 1e-3, True),
        ("<f4", (16, 2), 1e20, 1e-5, True),
    ],
)
def test_rows_coded_again_and_again_stay_within_one_bound(
    order, unwritten, dtype, shape, scale, bound, relative
):
    x = ((smooth_field(shape, "f8") + 2) * scale).astype(dtype)
    x.reshape(-1)[5] = -999
    extras = ChunkExtras(relative=True) if relative else ChunkExtras()
    parameters = library.chunk_parameters(shape, x.dtype, bound, -999.0, extras)
    read = np.full(shape, unwritten, dtype)
    for rows in parts_of(order):
        read[rows] = x[rows]
        data = library.encode_chunk(read, parameters)
        read = library.decode_chunk(data, shape, x.dtype, parameters).copy()
    assert worst(x, read, bound, relative) <= 1
    assert read.reshape(-1)[5] == -999
    again = library.encode_chunk(read, parameters)
    assert library.decode_chunk(again, shape, x.dtype, parameters).tobytes() == read.tobytes()


@pytest.mark.parametrize("dtype", ["<f4", ">f8"])
def test_rounded_chunks_decode_as_their_description_says(dtype):
    x = smooth_field((6, 7, 8), "f8").astype(dtype)
    x[4:] = np.nan
    x[0, 1, 2] = 3e30  # no multiple of the spacing is within the bound: stored as it is
    parameters = library.chunk_parameters(x.shape, x.dtype, 1e-3, None)
    data = library.encode_chunk(x, parameters)
    y = library.decode_chunk(data, x.shape, x.dtype, parameters)
    assert (data[4], data[5]) == (4, ROUNDED)
    assert y[0, 1, 2] == x[0, 1, 2]
    assert slow_decoder.decode_chunk(data, x.shape, x.dtype, 1e-3, None).tobytes() == y.tobytes()


def test_chunks_written_at_once_are_coded_as_before():
    x = smooth_field((8, 20, 30), "f4")
    for relative in (False, True):
        extras = ChunkExtras(relative=True) if relative else ChunkExtras()
        parameters = library.chunk_parameters(x.shape, x.dtype, 1e-3, None, extras)
        assert library.encode_chunk(x, parameters)[5] not in (LOSSLESS, ROUNDED)


def test_damaged_rounded_chunks_are_errors():
    x = smooth_field((6, 7, 8), "f4")
    x[4:] = 0
    parameters = library.chunk_parameters(x.shape, x.dtype, 1e-3, None)
    data, chance = library.encode_chunk(x, parameters), np.random.default_rng(0)
    for _ in range(200):
        damaged = bytearray(data)
        damaged[chance.integers(0, len(data))] ^= 1 << int(chance.integers(0, 8))
        with pytest.raises(DataError):
            library.decode_chunk(bytes(damaged), x.shape, x.dtype, parameters)


@pytest.fixture(scope="module")
def plugins(tmp_path_factory):
    """Let h5py load the filter."""
    directory = tmp_path_factory.mktemp("plugins")
    install(directory)
    h5py.h5pl.prepend(str(directory).encode())
    yield
    h5py.h5pl.remove(0)


@pytest.mark.usefixtures("plugins")
@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("fill", [None, np.nan])
def test_hdf5_files_are_appended_to(tmp_path, relative, fill):
    x = smooth_field((40, 12, 13), "f4") + 2
    extras = ChunkExtras(relative=True) if relative else ChunkExtras()
    options = filter_options(1e-3, extras, "f4") if relative else filter_options(1e-3)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset(
            "t",
            (0, 12, 13),
            "f4",
            maxshape=(None, 12, 13),
            chunks=(16, 12, 13),
            fillvalue=fill,
            **options,
        )
    ends = [1, 2, 3, 9, 16, 20, 21, 31, 33, 40]
    for first, end in zip([0, *ends], ends, strict=False):
        with h5py.File(tmp_path / "a.h5", "r+") as file:
            file["t"].resize(end, axis=0)
            file["t"][first:end] = x[first:end]
    with h5py.File(tmp_path / "a.h5") as file:
        assert worst(x, file["t"][...], 1e-3, relative) <= 1


def test_zarr_arrays_are_written_row_by_row(tmp_path):
    x = smooth_field((20, 12, 13), "f4")
    array = zarr.create_array(
        str(tmp_path / "a.zarr"),
        shape=x.shape,
        chunks=(16, 12, 13),
        dtype="f4",
        zarr_format=2,
        compressors=InterpolationCodec(1e-3),
        fill_value=0.0,
    )
    for i, row in enumerate(x):
        array[i] = row
    assert worst(x, array[...], 1e-3, relative=False) <= 1
