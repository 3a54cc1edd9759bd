"""Cells of virtual HDF5 datasets that no source provides: HDF5 returns fill values for them.

A cell counts once, however many sources overlap in it. Each axis is cut where any source begins or
ends; the pieces between cuts are mapped as a whole or not at all.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.io.loader.rows import VariableLayout

Runs = list[np.ndarray]
"""For each axis (runs, 2): first and last + 1 of the stretches of a selection."""
_CELLS = 2**24


def require_mapped(dataset: h5py.Dataset, layout: VariableLayout) -> None:
    """Raise if a virtual dataset has cells that no source provides, or that no source wrote.

    Raises:
        DataError: with the first stretch of such rows, or the source.
    """
    axis, shape = layout.axis, dataset.shape
    sources = dataset.virtual_sources()
    selections = [runs for s in sources for runs in _selected(s.vspace, shape)]
    empty = _uncovered(selections, shape, axis)
    if len(empty):
        last = empty[np.append(np.diff(empty) != 1, True)][0]
        raise DataError(
            f"rows {empty[0]} to {last} of the virtual dataset are not mapped to a source",
            where=layout.where,
            allowed="virtual datasets whose sources cover every cell",
            fix="map all rows, or allow_unwritten=True to read fill values there",
        )
    _require_written(dataset, sources, layout)


def unwritten(dataset: h5py.Dataset) -> np.ndarray:
    """Return the entries of a scalar or vector that were never written, same shape, bool.

    A virtual vector lacks what no source maps, and what is in a file that does not exist.
    """
    absent = np.zeros(dataset.shape, bool)
    if dataset.is_virtual:
        folder = Path(dataset.file.filename).parent
        sources = [
            s
            for s in dataset.virtual_sources()
            if s.file_name == "." or (folder / s.file_name).exists()
        ]
        runs = [part for s in sources for part in _selected(s.vspace, dataset.shape)]
        absent[_uncovered(runs, dataset.shape, 0)] = True
    elif dataset.chunks is not None:
        absent[...] = True
        size = dataset.chunks[0]

        def note(info: Any) -> None:
            absent[info.chunk_offset[0] : info.chunk_offset[0] + size] = False

        dataset.id.chunk_iter(note)
    elif dataset.size and not dataset.external:
        compact = dataset.id.get_create_plist().get_layout() == h5py.h5d.COMPACT
        absent[...] = not compact and dataset.id.get_offset() is None
    return absent


def _selected(space: h5py.h5s.SpaceID, shape: Sequence[int]) -> Iterator[Runs]:
    """Yield the boxes, or products of stretches, that a selection consists of."""
    if space.get_select_type() == h5py.h5s.SEL_ALL:
        yield [np.array([[0, size]]) for size in shape]
    elif space.is_regular_hyperslab():
        runs = []
        for start, stride, count, block, size in zip(
            *space.get_regular_hyperslab(), shape, strict=True
        ):
            # An unlimited count or block ends with the dataset.
            count = min(count, -(-size // max(1, stride)))
            first = start + stride * np.arange(count)
            last = np.minimum(first + min(block, size), size)
            runs.append(np.stack([first, last], 1)[first < size])
        yield runs
    else:
        blocks = space.get_select_hyper_blocklist()
        # HDF5 gives the last cell of a block, not the one after it.
        for low, high in np.asarray(blocks).reshape(-1, 2, len(shape)):
            yield [np.array([[a, b + 1]]) for a, b in zip(low, high, strict=True)]


def _uncovered(selections: Sequence[Runs], shape: Sequence[int], axis: int) -> np.ndarray:
    """Return the rows along an axis with a cell in no selection, ascending."""
    cuts, masks = [], []
    for n, size in enumerate(shape):
        edges = [np.array([0, size]), *(runs[n].ravel() for runs in selections)]
        cut = np.unique(np.concatenate(edges))
        cuts.append(cut)
        masks.append([_pieces(cut, runs[n]) for runs in selections])
    order = [axis, *(n for n in range(len(shape)) if n != axis)]
    lengths = [len(cuts[n]) - 1 for n in order]
    if 0 in lengths:
        return np.empty(0, np.int64)
    # Blocks of rows bound the memory: cuts of many sources multiply over the axes.
    at_once = max(1, _CELLS // max(1, int(np.prod(lengths[1:], dtype=np.int64))))
    rows = []
    for first in range(0, lengths[0], at_once):
        last = min(first + at_once, lengths[0])
        covered = np.zeros((last - first, *lengths[1:]), bool)
        for k in range(len(selections)):
            own = masks[axis][k]
            own = own[(own >= first) & (own < last)] - first
            if len(own):
                covered[np.ix_(own, *(masks[n][k] for n in order[1:]))] = True
        holes = ~covered.reshape(last - first, -1).all(axis=1)
        for piece in np.flatnonzero(holes) + first:
            rows.append(np.arange(cuts[axis][piece], cuts[axis][piece + 1]))
    return np.concatenate([np.empty(0, np.int64), *rows])


def _pieces(cut: np.ndarray, runs: np.ndarray) -> np.ndarray:
    """Return the numbers of the pieces between cuts that a selection's stretches consist of."""
    low, high = np.searchsorted(cut, runs[:, 0]), np.searchsorted(cut, runs[:, 1])
    parts = [np.arange(a, b) for a, b in zip(low, high, strict=True)]
    return np.unique(np.concatenate([np.empty(0, np.int64), *parts]))


def _require_written(dataset: h5py.Dataset, sources: Sequence[Any], layout: VariableLayout) -> None:
    """Raise if a source is absent from its file, too small, or was never written.

    Raises:
        DataError: with the source's file.
    """
    folder = Path(layout.path).parent
    by_file = itertools.groupby(sources, key=lambda source: source.file_name)
    for name, members in by_file:
        if name == ".":
            _require_sources(dataset.file, members, layout)
        else:
            with h5py.File(folder / name, "r") as file:
                _require_sources(file, members, layout)


def _require_sources(file: h5py.File, sources: Iterator[Any], layout: VariableLayout) -> None:
    for source in sources:
        stored = file.get(source.dset_name)
        fault = "has no such dataset"
        if isinstance(stored, h5py.Dataset):
            fault = _fault(stored, source)
        if fault:
            raise DataError(
                f"the values of its rows {_rows([source], layout)} are in "
                f"{file.filename}: {source.dset_name}, which {fault}",
                where=layout.where,
                fix="restore the file; HDF5 would return fill values instead",
            )


def rows_from(dataset: h5py.Dataset, file: str, layout: VariableLayout) -> str:
    """Return the first and last row of a dataset whose values are in another file, as text.

    Args:
        dataset: virtual, or with external storage.
        file: the name of the other file.
        layout: of the dataset.
    """
    if not dataset.is_virtual:
        return f"0 to {layout.num_rows - 1}"
    sources = dataset.virtual_sources()
    return _rows([s for s in sources if Path(s.file_name).name == file], layout)


def _rows(sources: Sequence[Any], layout: VariableLayout) -> str:
    parts = [runs[layout.axis] for s in sources for runs in _selected(s.vspace, layout.shape)]
    ends = np.concatenate([part.reshape(-1, 2) for part in parts])
    return f"{ends.min()} to {ends.max() - 1}"


def _fault(source: h5py.Dataset, mapping: Any) -> str:
    """Return what a source lacks of what is mapped to it, "" if it has all of it."""
    shape, space = source.shape, mapping.src_space
    if space.get_select_type() == h5py.h5s.SEL_ALL:
        # The whole source is mapped; its space states no shape in some files.
        wanted = mapping.vspace.get_select_npoints()
        if space.shape != shape and source.size != wanted:
            return f"has the shape {shape}, not {wanted} values"
        selections = list(_selected(space, shape))
    else:
        selections = list(_selected(space, space.shape))
    if any(not len(axis) for runs in selections for axis in runs):
        return ""
    if len(selections[0]) != len(shape):
        return f"has {len(shape)} dims, not {len(selections[0])}"
    ends = [max(int(runs[n].max()) for runs in selections) for n in range(len(shape))]
    if not _is_unlimited(space) and any(e > size for e, size in zip(ends, shape, strict=True)):
        return f"has the shape {shape}, not {tuple(ends)}"
    if source.is_virtual or not source.size:
        return ""  # HDF5 resolves it; its own sources are in other files
    if source.chunks is None:
        return "" if source.id.get_offset() is not None or source.external else _missing(source)
    grid = [-(-n // c) for n, c in zip(shape, source.chunks, strict=True)]
    if source.id.get_num_chunks() == int(np.prod(grid, dtype=np.int64)):
        return ""
    absent = np.ones(grid, bool)

    def note(info: Any) -> None:
        absent[tuple(o // c for o, c in zip(info.chunk_offset, source.chunks, strict=True))] = False

    source.id.chunk_iter(note)
    for runs in selections:
        touched = [
            np.unique(
                np.concatenate(
                    [np.arange(a // c, (min(b, n) - 1) // c + 1) for a, b in axis if a < n]
                    or [np.empty(0, np.int64)]
                )
            )
            for axis, c, n in zip(runs, source.chunks, shape, strict=True)
        ]
        if absent[np.ix_(*touched)].any():
            return _missing(source)
    return ""


def _missing(source: h5py.Dataset) -> str:
    compact = source.id.get_create_plist().get_layout() == h5py.h5d.COMPACT
    return "" if compact else "was not written completely"


def _is_unlimited(space: h5py.h5s.SpaceID) -> bool:
    if space.get_select_type() == h5py.h5s.SEL_ALL or not space.is_regular_hyperslab():
        return False
    _, _, counts, blocks = space.get_regular_hyperslab()
    return max(*counts, *blocks) >= h5py.h5s.UNLIMITED
