"""Virtual datasets: every cell that no source provides is told, also where sources overlap."""

import h5py
import numpy as np
import pytest

import scitoolkit
from scitoolkit.core.errors import DataError

SHAPE = (12, 6, 8)
VALUES = np.random.default_rng(0).random(SHAPE) + 5


def virtual(folder, parts, *, sources=None, written=True, chunks=None):
    """Write a dataset that maps parts of a source."""
    with h5py.File(folder / "values.dat", "w") as file:
        source = file.create_dataset("u", sources or SHAPE, "f8", chunks=chunks)
        if written is True:
            source[...] = VALUES[tuple(map(slice, source.shape))]
        elif written:
            source[written] = 5.0
    layout = h5py.VirtualLayout(SHAPE, "f8")
    source = h5py.VirtualSource(str(folder / "values.dat"), "u", SHAPE)
    for part in parts:
        layout[part] = source[part]
    path = folder / "run.h5"
    with h5py.File(path, "w") as file:
        dataset = file.create_virtual_dataset("u", layout)
        for axis, name in enumerate(("time", "y", "x")):
            dataset.dims[axis].label = name
    return path


def read(path):
    return list(scitoolkit.open_campaign(path, ["u"]).loader(batch_size=4, shuffle=False))


@pytest.mark.parametrize("row", [0, 4, 11])
@pytest.mark.parametrize("repeats", [2, 3])
def test_an_overlap_hides_no_hole(tmp_path, row, repeats):
    rows = [(slice(r, r + 1), slice(None), slice(None)) for r in range(12) if r != row]
    half = [(slice(row, row + 1), slice(None), slice(0, 4))] * repeats
    path = virtual(tmp_path, rows + half)
    with pytest.raises(DataError, match=f"rows {row} to {row} of the virtual"):
        read(path)


@pytest.mark.parametrize("seed", range(40))
def test_random_boxes(tmp_path, seed):
    random = np.random.default_rng(seed)
    parts, covered = [], np.zeros(SHAPE, bool)
    for _ in range(int(random.integers(1, 40))):
        ends = [np.sort(random.choice(n + 1, 2, replace=False)).tolist() for n in SHAPE]
        step = int(random.integers(1, 3))
        part = (slice(*ends[0], step), slice(*ends[1]), slice(*ends[2]))
        parts.append(part)
        covered[part] = True
    if seed % 4 == 0:
        parts.append((slice(None),) * 3)
        covered[...] = True
    path = virtual(tmp_path, parts)
    rows = np.flatnonzero(~covered.reshape(12, -1).all(axis=1))
    if not len(rows):
        assert np.array_equal(np.concatenate([b["x"][:, 0, 0] for b in read(path)]), VALUES[:-1])
        return
    with pytest.raises(DataError, match=f"rows {rows[0]} to "):
        read(path)


WHOLE = [(slice(None),) * 3]


def test_a_source_that_shrank_is_told(tmp_path):
    path = virtual(tmp_path, WHOLE, sources=(10, 6, 8))
    with pytest.raises(DataError, match="has the shape"):
        read(path)


@pytest.mark.parametrize("chunks", [None, (3, 6, 8), (1, 3, 4)])
@pytest.mark.parametrize("written", [False, slice(0, 3)])
def test_a_source_that_was_not_written_is_told(tmp_path, chunks, written):
    if chunks is None and written:
        pytest.skip("contiguous storage is allocated as a whole")
    path = virtual(tmp_path, WHOLE, written=written, chunks=chunks)
    with pytest.raises(DataError, match="not written completely"):
        read(path)


def test_a_source_without_the_dataset_is_told(tmp_path):
    path = virtual(tmp_path, WHOLE)
    with h5py.File(tmp_path / "values.dat", "a") as file:
        file.move("u", "v")
    with pytest.raises(DataError, match="no such dataset"):
        read(path)


def test_chunks_beyond_the_mapped_part_need_not_be_written(tmp_path):
    path = virtual(tmp_path, WHOLE, sources=(24, 6, 8), written=slice(0, 12), chunks=(3, 6, 8))
    assert len(read(path))
