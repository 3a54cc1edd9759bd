"""Streams and files of former versions decode to the same bits; new streams carry a checksum."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import xarray as xr

from scitoolkit.compression import compress, decompress
from scitoolkit.compression.codecs import codecs
from scitoolkit.compression.container import VALUES_CRC, read_header, unpack
from scitoolkit.compression.files import decompress_file
from scitoolkit.core.errors import DataError
from scitoolkit.testing.codec import smooth_field

OLD = Path(__file__).parents[2] / "golden" / "compression_v1"
VALUES = json.loads((OLD / "values.json").read_text())


def digest(values: np.ndarray) -> str:
    return hashlib.sha256(values.tobytes()).hexdigest()


@pytest.mark.parametrize("name", [n for n in VALUES if (OLD / f"{n}.sci").exists()])
def test_streams_of_version_1_decode_to_the_same_bits(name):
    stream = (OLD / f"{name}.sci").read_bytes()
    assert stream[4] == 1
    assert digest(decompress(stream)) == VALUES[name]


def test_a_file_of_the_first_layout_comes_back(tmp_path):
    assert decompress_file(OLD / "file.h5", tmp_path / "t.nc") == ["t"]
    with h5py.File(tmp_path / "t.nc") as file:
        assert digest(file["t"][...]) == VALUES["file"]
    with xr.open_dataset(tmp_path / "t.nc") as dataset:
        assert dataset.t.dims == ("time", "y", "x")
        assert dataset.t.attrs["units"] == "K"
        assert dataset.attrs["title"] == "made by version 1"
        assert int(dataset.t.isnull().sum()) == 2 * (6 * 8 + 1)


@pytest.mark.parametrize("codec", sorted(c for c in codecs if not codecs.get(c).checked))
def test_other_values_than_those_verified_are_an_error(codec, monkeypatch):
    """A library of another version, or another machine, may decode to other values."""
    x = smooth_field((12, 14, 13))
    stream = compress(x, rel=1e-2, codec=codec, enhancer="none")
    header, _ = unpack(stream)
    assert header["base"]["name"] == codec
    assert VALUES_CRC in read_header(stream)
    member, restore = codecs.get(codec), codecs.get(codec).restore

    def other(*arguments):
        values = restore(*arguments)
        values.reshape(-1)[7] = np.nextafter(values.reshape(-1)[7], np.inf)
        return values

    monkeypatch.setattr(member, "restore", other)
    with pytest.raises(DataError, match=f"codec {codec} decodes to other values"):
        decompress(stream)
