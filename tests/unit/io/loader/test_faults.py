"""Whatever is wrong with a file, no bad sample comes out silently."""

from __future__ import annotations

import fcntl
import logging
import os

import h5py
import numpy as np
import pytest

from scitoolkit.core.errors import DataError
from scitoolkit.io.loader import PlannedLoader, open_source

N, K = 64, 8
U = np.random.default_rng(0).normal(size=(N, 4, 32)).astype("f4")
LAYOUTS = {
    "contiguous": {},
    "chunked": {"chunks": (K, 4, 32)},
    "gzip": {"chunks": (K, 4, 32), "compression": "gzip", "shuffle": True},
    "checked": {"chunks": (K, 4, 32), "fletcher32": True},
    "lzf": {"chunks": (K, 4, 32), "compression": "lzf", "fletcher32": True},
}


def make(path, layout):
    with h5py.File(path, "w") as file:
        file.create_dataset("u", data=U, **LAYOUTS[layout])
    return path


def loader(source, **options):
    options = {"buffer": 8000, "threads": 2, "prefetch": 0, **options}
    return PlannedLoader(source, 8, 1, **options)


def chunk_at(path, number):
    with h5py.File(path) as file:
        info = file["u"].id.get_chunk_info(number)
    return info.byte_offset, info.size


def damage(path, offset):
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(b"\xff\x00\xff\x00\xff\x00\xff\x7f" * 3)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_cut_short_before_it_is_opened(layout, tmp_path):
    path = make(tmp_path / "u.h5", layout)
    size = path.stat().st_size
    os.truncate(path, size // 2)
    with pytest.raises(DataError, match=rf"u\.h5: .*{size // 2}.*stored_eof = {size}"):
        open_source(path, {"x": "u"})


@pytest.mark.parametrize("layout", LAYOUTS)
def test_cut_short_while_it_is_open(layout, tmp_path):
    path = make(tmp_path / "u.h5", layout)
    batches = iter(loader(open_source(path, {"x": "u"}), buffer=0))
    next(batches)
    size = path.stat().st_size
    os.truncate(path, size // 3)
    with pytest.raises(DataError, match=rf"batch \d+, sample \d+: .*u\.h5.*had {size} bytes"):
        list(batches)


@pytest.mark.parametrize("layout", ["gzip", "checked", "lzf"])
def test_bit_rot_names_chunk_and_sample(layout, tmp_path):
    path = make(tmp_path / "u.h5", layout)
    offset, size = chunk_at(path, 3)
    source = open_source(path, {"x": "u"})
    damage(path, offset + size // 2)
    named = "rows" if layout == "lzf" else r"chunk \(3, 0, 0\), rows 24 to 31"
    with pytest.raises(DataError, match=rf"sample (2[4-9]|3[01]): .*u\.h5: variable u, {named}"):
        list(loader(source))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_values_that_are_not_finite(layout, tmp_path):
    path = make(tmp_path / "u.h5", layout)
    with h5py.File(path, "r+") as file:
        file["u"][11, 2, 5] = np.nan
        file["u"][40, 0, 0] = np.inf
    with pytest.raises(DataError, match=r"sample (11|40): variable u: NaN or Inf in 1 of 1 rows"):
        list(loader(open_source(path, {"x": "u"})))
    allowed = list(loader(open_source(path, {"x": "u"}, allow_nan=True)))
    assert sum(int((~batch["x"].isfinite()).sum()) for batch in allowed) == 2


def test_large_finite_values_are_not_taken_for_infinite(tmp_path):
    with h5py.File(tmp_path / "u.h5", "w") as file:
        file["u"] = np.full((N, 9), 3e38, "f4")
    assert len(list(loader(open_source(tmp_path / "u.h5", {"x": "u"})))) == 8


@pytest.mark.parametrize("layout", ["chunked", "gzip", "lzf"])
def test_chunks_that_were_never_written(layout, tmp_path):
    with h5py.File(tmp_path / "u.h5", "w") as file:
        data = file.create_dataset("u", U.shape, "f4", **LAYOUTS[layout])
        data[:16] = U[:16]
        data[24:48] = U[24:48]
    source = open_source(tmp_path / "u.h5", {"x": "u"})
    with pytest.raises(DataError, match="rows 16 to 23, 48 to 63 were never written"):
        loader(source)
    with pytest.raises(DataError, match="never written"):
        source.read(np.array([0, 20]))
    written = source.select(np.r_[0:16, 24:48])
    assert sum(len(b["x"]) for b in loader(written)) == 40
    filled = open_source(tmp_path / "u.h5", {"x": "u"}, allow_unwritten=True)
    assert np.array_equal(filled.read(np.array([20, 0]))["x"], [0 * U[0], U[0]])


def test_contiguous_data_that_was_never_written(tmp_path):
    with h5py.File(tmp_path / "u.h5", "w") as file:
        file.create_dataset("u", U.shape, "f4")
    with pytest.raises(DataError, match="rows 0 to 63 were never written"):
        loader(open_source(tmp_path / "u.h5", {"x": "u"}))


@pytest.mark.parametrize("layout", ["gzip", "lzf"])
def test_skipping_takes_the_same_sample_on_any_number_of_ranks(layout, tmp_path, caplog):
    path = make(tmp_path / "u.h5", layout)
    offset, size = chunk_at(path, 3)
    damage(path, offset + size // 2)
    streams = []
    for ranks in (1, 2, 4):
        source = open_source(path, {"x": "u"})
        loaders = [loader(source, on_error="skip", rank=r, world_size=ranks) for r in range(ranks)]
        stream = []
        for epoch in range(2):
            for each in loaders:
                each.set_epoch(epoch)
            for parts in zip(*loaders, strict=True):
                assert [len(part["x"]) for part in parts] == [8 // ranks] * ranks
                stream.append(sorted(float(v) for part in parts for v in part["x"][:, 0, 0]))
        streams.append(stream)
        replaced = {s for each in loaders for s in each.stats()["samples_replaced"]}
        assert replaced == set(range(24, 32))
    assert streams[0] == streams[1] == streams[2]
    bad = set(U[24:32, 0, 0].tolist())
    assert all(v not in bad for batch in streams[0] for v in batch)
    assert any("sample 24 is replaced by sample" in m for m in caplog.messages)


def test_skipping_gives_up_when_nothing_can_be_read(tmp_path):
    with h5py.File(tmp_path / "u.h5", "w") as file:
        file["u"] = np.full((N, 2), np.nan)
    with pytest.raises(DataError, match="none of 100 other samples"):
        list(loader(open_source(tmp_path / "u.h5", {"x": "u"}), on_error="skip"))


def test_a_file_that_is_being_written_to_is_read_with_a_warning(tmp_path, caplog):
    path = make(tmp_path / "u.h5", "gzip")
    with path.open("r+b") as writer:
        fcntl.flock(writer, fcntl.LOCK_EX)
        with caplog.at_level(logging.WARNING):
            source = open_source(path, {"x": "u"})
        assert "is locked: another process is writing to it" in caplog.text
        assert np.array_equal(source.read(np.array([5]))["x"], U[5:6])
        writer.seek(0, 2)
        writer.write(b"more")
    list(loader(source))
    assert "is being written while being read" in caplog.text


@pytest.mark.parametrize("layout", ["contiguous", "gzip"])
def test_a_file_removed_during_an_epoch_is_read_to_its_end(layout, tmp_path, caplog):
    path = make(tmp_path / "u.h5", layout)
    batches = loader(open_source(path, {"x": "u"}), buffer=0)
    rows = []
    for batch in batches:
        path.unlink(missing_ok=True)
        rows += batch["x"][:, 0, 0].tolist()
    assert sorted(rows) == sorted(U[:, 0, 0].tolist())
    assert "was removed while being read" in caplog.text


def test_virtual_data_whose_files_are_gone(tmp_path):
    make(tmp_path / "part.h5", "contiguous")
    layout = h5py.VirtualLayout(shape=U.shape, dtype="f4")
    layout[:] = h5py.VirtualSource("part.h5", "u", shape=U.shape)
    with h5py.File(tmp_path / "u.h5", "w") as file:
        file.create_virtual_dataset("u", layout)
        file.create_dataset("e", U.shape, "f4", external=[("raw.bin", 0, U.nbytes)])
    source = open_source(tmp_path / "u.h5", {"x": "u"})
    assert np.array_equal(source.read(np.array([9]))["x"], U[9:10])
    os.truncate(tmp_path / "part.h5", 3000)
    with pytest.raises(DataError, match="truncated while open"):
        list(loader(source))
    (tmp_path / "part.h5").unlink()
    with pytest.raises(DataError, match=r"part\.h5 does not exist"):
        open_source(tmp_path / "u.h5", {"x": "u"})
    with pytest.raises(DataError, match=r"raw\.bin does not exist"):
        open_source(tmp_path / "u.h5", {"x": "e"})
    (tmp_path / "raw.bin").write_bytes(b"short")
    with pytest.raises(DataError, match=rf"raw\.bin has 5 bytes, not {U.nbytes}"):
        open_source(tmp_path / "u.h5", {"x": "e"})


def test_no_file_no_format_and_no_numbers(tmp_path):
    with pytest.raises(DataError, match="no such file"):
        open_source(tmp_path / "none.h5", {"x": "u"})
    (tmp_path / "text").write_text("not a data file")
    with pytest.raises(DataError, match="format not recognised"):
        open_source(tmp_path / "text", {"x": "u"})
    with h5py.File(tmp_path / "u.h5", "w") as file:
        file["names"] = ["a", "b"]
    with pytest.raises(DataError, match="not a numeric array"):
        open_source(tmp_path / "u.h5", {"x": "names"})
