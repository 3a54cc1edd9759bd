"""Slabs share the range of the whole array, and each is a separate stream."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest

from scitoolkit.cli.main import run_cli
from scitoolkit.compression import Bound, Options, compress_slabs, decompress, iterate_slabs
from scitoolkit.compression.container import pack, unpack
from scitoolkit.core.errors import DataError


@pytest.fixture
def field() -> np.ndarray:
    x = np.sin(np.linspace(0, 9, 24 * 20 * 20)).astype("f4").reshape(24, 20, 20)
    x[:8] *= 1e-3
    x[3, 4, 5] = np.nan
    return x


def test_a_relative_bound_refers_to_the_whole_array(field):
    bound = 1e-2 * float(np.nanmax(field) - np.nanmin(field))
    for array in (field, da.from_array(field)):
        stream = compress_slabs(array, Bound("rel", 1e-2), Options(), slab_bytes=13000)
        found = decompress(stream)
        assert np.nanmax(np.abs(found.astype(float) - field)) <= bound
        assert (np.isnan(found) == np.isnan(field)).all()
        slabs = list(iterate_slabs(stream))
        assert len(slabs) == 3
        assert np.concatenate(slabs).tobytes() == found.tobytes()


def test_a_missing_or_foreign_slab_is_noticed(field):
    stream = compress_slabs(field, Bound("abs", 1e-2), Options(), slab_bytes=13000)
    header, sections = unpack(stream)
    parts = {k: bytes(v) for k, v in sections.items()}
    with pytest.raises(DataError, match="slabs are missing"):
        decompress(pack(header, {k: v for k, v in parts.items() if k != "1"}))
    with pytest.raises(DataError, match="does not fit"):
        decompress(pack(header, {**parts, "3": parts["0"]}))


def test_a_file_in_slabs_comes_back_and_can_be_inspected(tmp_path, field, monkeypatch, capsys):
    monkeypatch.setattr(
        "scitoolkit.compression.slabs.compress_slabs.__kwdefaults__",
        {"missing": None, "where": "", "slab_bytes": 13000},
    )
    np.save(tmp_path / "x.npy", field)
    names = [str(tmp_path / n) for n in ("x.npy", "x.sci", "y.npy")]
    assert run_cli(["compress", *names[:2], "--rel", "1e-2"]) == 0
    assert run_cli(["inspect", names[1]]) == 0
    assert "slabs + no enhancer  bound rel 0.01" in capsys.readouterr().out
    assert run_cli(["decompress", *names[1:]]) == 0
    assert np.nanmax(np.abs(np.load(names[2]) - field)) <= 1e-2 * np.nanmax(field) * 2


def test_masks_of_dask_chunks_come_back(field):
    mask = np.zeros(field.shape, bool)
    mask[len(field) // 2 :, 1] = True
    array = da.from_array(np.ma.array(field, mask=mask, fill_value=-9.0), chunks=(4, -1, -1))
    rows = 8 * field[0].nbytes
    back = decompress(compress_slabs(array, Bound("abs", 1e-2), Options(), slab_bytes=rows))
    assert (np.ma.getmaskarray(back) == mask).all()
    assert back.fill_value == np.float32(-9.0)
    assert np.nanmax(np.abs(back.data - field)[~mask]) <= 1e-2
