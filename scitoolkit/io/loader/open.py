"""Opening of files as sources of samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.suggest import nearest_name
from scitoolkit.io.fields import PathLike, expand_paths
from scitoolkit.io.formats.base import format_of
from scitoolkit.io.loader.file_source import FileSource, Key, RowSet
from scitoolkit.io.loader.rows import RowReader, VariableLayout

Frames = int | Sequence[int]
Extent = slice | tuple[int, int]


def open_source(
    path: PathLike | Sequence[PathLike],
    variables: Mapping[str, str | Sequence[str]],
    sample_dim: str | int = 0,
    *,
    frames: Mapping[str, Frames] | None = None,
    crop: Mapping[str, Extent] | None = None,
    join: bool = False,
    allow_nan: bool = False,
    allow_unwritten: bool = False,
) -> FileSource:
    """Open files as a source of samples, reading only metadata.

    Args:
        path: a file, a Zarr folder, a glob, or a list of files with the same variables.
        variables: {key of the batch: variable}; a list of variables becomes a channel dim.
        sample_dim: name or number of the sample dim, for example time.
        frames: {key: steps relative to a sample's first row}, 0 by default. A number selects one
            step: {"x": 0, "y": 1} maps a state to the next. A sequence adds a dim:
            {"x": range(4), "y": range(4, 6)} maps four frames to the next two.
        crop: {dim: (start, stop)}: the part of every row to read.
        join: whether windows may continue from one file into the next.
        allow_nan: whether to accept non-finite values.
        allow_unwritten: whether to read fill values in chunks that were never written.

    Returns:
        The source; samples have key -> (samples, [frames], [channels], *other dims).

    Raises:
        DataError: a file or variable is missing or damaged, or lengths differ.
        ConfigError: the files do not have a dim or crop, or `variables` or `frames` are invalid.
        BackendError: Zarr without the optional package.

    Example:
        >>> import h5py, tempfile
        >>> path = Path(tempfile.mkdtemp()) / "run.h5"
        >>> with h5py.File(path, "w") as file:
        ...     file["u"] = np.arange(12.0).reshape(6, 2)
        >>> source = open_source(path, {"x": "u", "y": "u"}, frames={"x": [0, 1], "y": 2})
        >>> source.read(np.array([3]))["x"].tolist(), len(source)
        ([[[6.0, 7.0], [8.0, 9.0]]], 4)
    """
    keys = _keys(variables, frames or {})
    names = list(dict.fromkeys(name for key in keys.values() for name in key.variables))
    files = []
    for file in expand_paths(path):
        wanted = _Wanted(sample_dim, crop or {}, str(file))
        files.append(_readers(file, names, wanted, allow_unwritten))
        wanted.check()
        _same_lengths(files[-1], file)
    rows = {name: RowSet(name, [readers[name] for readers in files]) for name in names}
    bounds = rows[names[0]].bounds
    if join:
        bounds = bounds[[0, -1]]
    return FileSource(rows, keys, _starts(bounds, keys, str(path)), allow_nan=allow_nan)


def _keys(
    variables: Mapping[str, str | Sequence[str]], frames: Mapping[str, Frames]
) -> dict[str, Key]:
    if not variables:
        raise ConfigError("no variables given", fix='variables={"x": "u", "y": "p"}')
    unknown = [key for key in frames if key not in variables]
    if unknown:
        raise ConfigError(
            f"frames are given for {unknown[0]!r}", allowed=", ".join(map(str, variables))
        )
    keys = {}
    for key, names in variables.items():
        steps = frames.get(key, 0)
        windowed = not isinstance(steps, int | np.integer)
        tuple_of_steps = tuple(int(s) for s in steps) if windowed else (int(steps),)  # type: ignore
        if not tuple_of_steps or min(tuple_of_steps) < 0:
            raise ConfigError(f"frames {steps!r} of {key!r}", allowed="steps 0, 1, ...")
        stacked = not isinstance(names, str)
        chosen = (names,) if isinstance(names, str) else tuple(names)
        if not chosen:
            raise ConfigError(f"no variables given for {key!r}")
        keys[key] = Key(chosen, tuple_of_steps, stacked, windowed)
    return keys


class _Wanted:
    """Callable that returns the `VariableLayout` of a variable, with sample axis and crop."""

    def __init__(self, sample_dim: str | int, crop: Mapping[str, Extent], where: str) -> None:
        self.sample_dim, self.crop, self.where = sample_dim, crop, where
        self.unused = set(crop)

    def __call__(self, **found: Any) -> VariableLayout:
        dims, shape = found["dims"], found["shape"]
        where = f"{self.where}: variable {found['name']}"
        axis = self.sample_dim
        if isinstance(axis, str):
            if axis not in dims:
                near = nearest_name(axis, dims)
                raise ConfigError(
                    f"no dim {axis!r}",
                    where=where,
                    allowed=", ".join(dims),
                    fix=f"sample_dim={near!r}" if near else "sample_dim=0 counts the first dim",
                )
            axis = dims.index(axis)
        if not -len(dims) <= axis < len(dims):
            raise ConfigError(f"no dim number {axis}", where=where, allowed=f"0 to {len(dims) - 1}")
        axis %= len(dims)
        windows = [slice(0, n) for n in shape]
        for i, (dim, length) in enumerate(zip(dims, shape, strict=True)):
            if dim in self.crop and i != axis:
                self.unused.discard(dim)
                windows[i] = _extent(self.crop[dim], dim, length, where)
        return VariableLayout(**found, axis=axis, crop=tuple(windows))

    def check(self) -> None:
        if self.unused:
            raise ConfigError(
                f"crop of {', '.join(sorted(self.unused))}: no variable has such a dim other than "
                "the sample dim",
                where=self.where,
            )


def _extent(extent: Extent, dim: str, length: int, where: str) -> slice:
    start, stop = (extent.start or 0, extent.stop) if isinstance(extent, slice) else extent
    stop = length if stop is None else stop
    if not 0 <= start < stop <= length or (
        isinstance(extent, slice) and extent.step not in (None, 1)
    ):
        raise ConfigError(
            f"crop {extent} of {dim}", where=where, allowed=f"a range within 0 to {length}"
        )
    return slice(int(start), int(stop))


def _readers(
    file: Path, names: list[str], wanted: _Wanted, allow_unwritten: bool
) -> dict[str, RowReader]:
    format_class = format_of(file)
    return format_class.row_readers(file, names, wanted, allow_unwritten=allow_unwritten)


def _same_lengths(readers: Mapping[str, RowReader], file: Path) -> None:
    lengths = {name: reader.layout.num_rows for name, reader in readers.items()}
    if len(set(lengths.values())) > 1:
        dims = {name: reader.layout.dims[reader.layout.axis] for name, reader in readers.items()}
        raise DataError(
            "the variables differ in their number of samples: "
            + ", ".join(f"{name} has {n} along {dims[name]}" for name, n in lengths.items()),
            where=str(file),
        )


def _starts(bounds: np.ndarray, keys: Mapping[str, Key], where: str) -> np.ndarray:
    window = 1 + max(frame for key in keys.values() for frame in key.frames)
    parts = [np.arange(a, b - window + 1, dtype=np.int64) for a, b in pairwise(bounds.tolist())]
    starts = np.concatenate(parts)
    if not len(starts):
        raise DataError(
            f"no file has the {window} steps that a sample requires; they have "
            f"{', '.join(map(str, np.diff(bounds)[:5]))}",
            where=where,
        )
    return starts
