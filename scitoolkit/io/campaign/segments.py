"""Location of a campaign's rows: segments of files as columns, sorted by simulation."""

from __future__ import annotations

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from scitoolkit.core.errors import DataError, ScitoolkitError
from scitoolkit.core.log import get_logger
from scitoolkit.core.units import same_unit
from scitoolkit.io.campaign.campaign_layout import (
    SIMULATION,
    TIME,
    Array,
    CampaignLayout,
    CampaignOptions,
)
from scitoolkit.io.campaign.clocks import require_same_step
from scitoolkit.io.campaign.constants import constants_of
from scitoolkit.io.campaign.copies import without_copies
from scitoolkit.io.campaign.file_names import name_parts
from scitoolkit.io.campaign.file_rows import FileRows
from scitoolkit.io.campaign.files import CampaignFiles
from scitoolkit.io.campaign.headers import FileHeader, StoredArray, full_name
from scitoolkit.io.campaign.layouts import missing_field
from scitoolkit.io.campaign.more_layouts import layout_of
from scitoolkit.io.campaign.overlaps import require_equal_rows
from scitoolkit.io.campaign.series import simulations
from scitoolkit.io.campaign.table import HeaderTable
from scitoolkit.io.meanings import other_meaning

if TYPE_CHECKING:
    import xarray as xr

_logger = get_logger(__name__)
_COLUMNS = ("file", "group", "member", "begin", "count", "simulation")


@dataclass
class Segments:
    """Segments as columns; a segment is a range of rows of one simulation in one file.

    Attributes:
        files: names, sizes and modification times.
        table: headers of the files.
        groups: names of groups in files.
        file: (segments,) number of the file.
        group: (segments,) number of the group.
        member: (segments,) index along the simulation axis, -1 without one.
        begin: (segments,) row of the file that is the first of the segment.
        count: (segments,) number of rows.
        simulation: (segments,) number of the simulation, non-decreasing.
        labels: name of each simulation.
        skipped: {skipped simulation or file: reason}.
        breaks: {segment: rows of it before which times are missing}.
        turns: {segment: (dim, flip, shift, size) of dims in another order, see `turns.Turn`}.
    """

    files: CampaignFiles
    table: HeaderTable
    groups: list[str]
    file: np.ndarray
    group: np.ndarray
    member: np.ndarray
    begin: np.ndarray
    count: np.ndarray
    simulation: np.ndarray
    labels: list[str]
    skipped: dict[str, str] = field(default_factory=dict)
    breaks: dict[int, list[int]] = field(default_factory=dict)
    turns: dict[int, list[tuple[str, bool, int, int]]] = field(default_factory=dict)

    @classmethod
    def empty(cls, files: CampaignFiles, table: HeaderTable) -> Segments:
        """Return files without segments."""
        columns: dict[str, Any] = {name: np.empty(0, np.int64) for name in _COLUMNS}
        return cls(files, table, [], **columns, labels=[])

    def __len__(self) -> int:
        """Return the number of segments."""
        return len(self.file)

    def path(self, segment: int) -> str:
        """Return the file of a segment."""
        return self.files.paths[self.file[segment]]

    def used_paths(self) -> list[str]:
        """Return the files with rows, in the order of the segments."""
        return [self.files.paths[i] for i in dict.fromkeys(self.file.tolist())]

    def header(self, file: int) -> FileHeader:
        """Return the header of a file."""
        return self.table.header(file, self.files.paths[file])

    def array_name(self, segment: int, path: str) -> str:
        """Return the full name of a segment's array in its file."""
        group = self.groups[self.group[segment]]
        return full_name(group, path)

    def stored(self, segment: int, path: str) -> StoredArray:
        """Return the metadata of a segment's array."""
        schema = self.table.schemas[self.table.schema[self.file[segment]]]
        return schema.variables[self.array_name(segment, path)]

    def state(self, segment: int) -> tuple[str, int, int]:
        """Return name, size and modification time of a segment's file."""
        number = int(self.file[segment])
        files = self.files
        return files.paths[number], int(files.sizes[number]), int(files.modified[number])

    def times(
        self, segment: int, options: CampaignOptions, fields: Iterable[str]
    ) -> xr.Variable | None:
        """Return the decoded times of a segment of some fields; None if the file has none."""
        header = self.header(int(self.file[segment]))
        layout = layout_of(header)
        group = self.groups[self.group[segment]]
        stored = layout.times(header, group, options, list(fields))
        # A file that a simulation still writes may have a longer axis of times than rows that
        # were written; the last rows of a part before a restart may be left out.
        if stored is not None and stored.values is not None and np.ndim(stored.values):
            begin = int(self.begin[segment])
            end = begin + int(self.count[segment])
            stored = replace(stored, values=stored.values[..., begin:end])
        member, count = int(self.member[segment]), int(self.count[segment])
        about = stored, layout, options
        series = FileRows.of(str(header.path), 0, group, member, count, *about)
        return series.times(options.sample_dim)

    def reference(self, options: CampaignOptions) -> FileHeader:
        """Return the header that the others must match.

        It is the first, or with `on_error: skip` the first of the most common kind.

        Raises:
            DataError: no file can be read.
        """
        if options.on_error == "raise":
            return self.header(0)
        # A majority vote: with `on_error: skip` a damaged or foreign file that sorts first must
        # not decide that all others are wrong. Schemas that differ only in their number of rows
        # count as one kind.
        numbered = reversed(list(enumerate(self.table.schema)))
        kinds = {at: number for number, at in numbered if at >= 0}  # the first of each
        if not kinds:
            return self.header(0)
        count = Counter(self.table.schema)
        alike: dict[Any, int] = {}
        for at in kinds:
            alike[self._kind(at)] = alike.get(self._kind(at), 0) + count[at]
        most = max(alike, key=lambda k: alike[k])
        return self.header(next(n for at, n in kinds.items() if self._kind(at) == most))

    def _kind(self, schema: int) -> tuple[Any, ...]:
        variables = self.table.schemas[schema].variables.values()
        return tuple((v.name, v.dims, v.shape[1:], v.attrs.get("units")) for v in variables)

    def to_json(self) -> dict[str, Any]:
        """Return the segments as JSON types; the inverse of `from_json`."""
        return {
            "paths": self.files.paths,
            "sizes": self.files.sizes.tolist(),
            "modified": self.files.modified.tolist(),
            "table": self.table.to_json(),
            **{name: getattr(self, name).tolist() for name in _COLUMNS},
            "groups": self.groups,
            "labels": self.labels,
            "skipped": self.skipped,
            "breaks": {str(k): v for k, v in self.breaks.items()},
            "turns": {str(k): v for k, v in self.turns.items()},
        }

    @classmethod
    def from_json(cls, found: Mapping[str, Any]) -> Segments:
        """Return segments from the JSON types of `to_json`."""
        files = CampaignFiles(
            found["paths"],
            np.array(found["sizes"], np.int64),
            np.array(found["modified"], np.int64),
        )
        columns = {name: np.array(found[name], np.int64) for name in _COLUMNS}
        table = HeaderTable.from_json(found["table"])
        return cls(
            files,
            table,
            found["groups"],
            **columns,
            labels=found["labels"],
            skipped=found["skipped"],
            breaks={int(k): v for k, v in found.get("breaks", {}).items()},
            turns={int(k): [tuple(t) for t in v] for k, v in found.get("turns", {}).items()},
        )


def find_segments(
    files: Segments,
    first: FileHeader,
    layout: type[CampaignLayout],
    used: Mapping[str, Array],
    options: CampaignOptions,
) -> Segments:
    """Find the rows of every file and the simulations they belong to.

    Args:
        files: files and headers.
        first: header that all others must match.
        layout: of all files.
        used: the arrays that are read, by path.
        options: of the campaign.

    Raises:
        DataError: a file differs from the first, unless `on_error` is `skip`; or none is left.
    """
    skipped: dict[str, str] = {}

    def refuse(name: str, error: ScitoolkitError) -> None:
        if options.on_error == "raise":
            raise error
        skipped[name] = str(error)

    _require_one_tile(files.files.paths)
    series: list[FileRows] = []
    reading = _Rows(first, layout, used, options)
    for number, path in enumerate(files.files.paths):
        try:
            series += list(reading.of(files, number, path))
        except DataError as error:
            refuse(path, error)
    if not series:
        raise DataError("no file can be read", where=files.files.paths[0])
    grouped = simulations(series, options)
    for name, members in grouped.items():
        try:
            require_equal_rows(members, used, files.header)
        except DataError as error:
            refuse(name, error)
    # In this order: a simulation with a missing file would be refused for its step, and copies
    # are compared only among what is left.
    _without_incomplete(grouped, skipped, files.files.paths, options)
    if options.steps == "same":
        require_same_step(grouped, refuse)
    if options.on_error == "skip":
        sizes = dict(zip(files.files.paths, files.files.sizes.tolist(), strict=True))
        # A file with several simulations is never a copy of another as a whole.
        alone = Counter(s.path for s in series)
        skipped |= without_copies(
            {
                n: [(s.path, sizes[s.path]) for s in m if alone[s.path] == 1]
                for n, m in grouped.items()
                if n not in skipped
            }
        )
    grouped = {name: members for name, members in grouped.items() if name not in skipped}
    if not grouped:
        raise DataError("no simulation is left", where=files.files.paths[0])
    for name, why in skipped.items():
        _logger.warning("skipped %s: %s", name, why)
    return _columns(files, grouped, skipped)


_TILE = re.compile(r"[._-]tile_?(\d+)(?=[._-]|$)", re.IGNORECASE)


def _require_one_tile(paths: Sequence[str]) -> None:
    """Refuse files of several tiles of one sphere or domain, which are no simulations.

    Raises:
        DataError: with two tiles that are called alike but for their numbers.
    """
    tiles: dict[str, tuple[str, str]] = {}
    for path in paths:
        if (tile := _TILE.search(os.path.basename(path))) is None:
            continue
        name = path.replace(tile[0], "")
        number, first = tiles.setdefault(name, (tile[1], path))
        if number != tile[1]:
            raise DataError(
                f"tile {tile[1]} of a domain, and {first} is tile {number} of it: each would be a "
                "simulation with walls that are none",
                where=path,
                allowed="one tile, or files of the whole domain",
                fix=f"fregrid, or a pattern such as *{tile[0]}*",
            )


def _without_incomplete(
    grouped: dict[str, list[FileRows]],
    skipped: dict[str, str],
    paths: Sequence[str],
    options: CampaignOptions,
) -> None:
    """Skip simulations of which a single-sample file was skipped, because steps are missing."""
    if not skipped or not all(s.single for members in grouped.values() for s in members):
        return
    timed = any(s.stored is not None for members in grouped.values() for s in members)
    for path in [p for p in paths if p in skipped]:
        simulation = name_parts(path, timed, options)[0]
        if len(grouped.get(simulation, ())) and len(grouped) > 1:
            skipped[simulation] = skipped[path]


def _columns(
    files: Segments, grouped: Mapping[str, Sequence[FileRows]], skipped: dict[str, str]
) -> Segments:
    # A segment for each stretch of rows that follow one another in a file.
    ordered = [
        (number, part, first, last)
        for number, parts in enumerate(grouped.values())
        for part in parts
        for first, last in part.stretches()
    ]
    breaks: dict[int, list[int]] = {}
    for k, (_, part, first, last) in enumerate(ordered):
        if inside := [row - first for row in part.breaks if first <= row < last]:
            breaks[k] = inside
    groups = list(dict.fromkeys(part.group for _, part, *_ in ordered))
    numbers = {name: i for i, name in enumerate(groups)}
    begins = [int(part.in_file(np.array([first]))[0]) for _, part, first, _ in ordered]
    return replace(
        files,
        groups=groups,
        labels=list(grouped),
        skipped=skipped,
        breaks=breaks,
        file=np.array([part.file for _, part, *_ in ordered], np.int64),
        group=np.array([numbers[part.group] for _, part, *_ in ordered], np.int64),
        member=np.array([part.member for _, part, *_ in ordered], np.int64),
        begin=np.array(begins, np.int64),
        count=np.array([last - first for *_, first, last in ordered], np.int64),
        # Non-decreasing by construction, so that the rows of a simulation are found by bisection.
        simulation=np.array([number for number, *_ in ordered], np.int64),
    )


class _Rows:
    """Series of files; arrays are compared with those of the first file once per schema."""

    def __init__(
        self,
        first: FileHeader,
        layout: type[CampaignLayout],
        used: Mapping[str, Array],
        options: CampaignOptions,
    ) -> None:
        self.first, self.layout, self.used, self.options = first, layout, used, options
        self.checked: dict[int, list[tuple[str, int | None, int | None]]] = {}

    def of(self, files: Segments, number: int, path: str) -> Iterator[FileRows]:
        """Yield the series of a file."""
        header = files.header(number)
        at = files.table.schema[number]
        # Most files of a campaign share one schema: 10^5 files are compared with the first by a
        # look-up.
        if at not in self.checked:
            self.checked[at] = [(g, *self._extents(header, g)) for g in self.layout.groups(header)]
        for group, members, count in self.checked[at]:
            times = self.layout.times(header, group, self.options, list(self.used))
            written = self.layout.written(header)
            if times is not None and times.values is not None and written is not None:
                times = replace(times, values=times.values[..., :count])
            step = self.layout.step(header, group)
            constants = constants_of(header) if len(files.files.paths) > 1 else {}
            for member in range(members) if members is not None else [-1]:
                about = times, self.layout, self.options, step, constants
                yield FileRows.of(path, number, group, member, count, *about)

    def _extents(self, header: FileHeader, group: str) -> tuple[int | None, int | None]:
        """Return the numbers of simulations and rows of a group of a file."""
        arrays = {a.path: a for a in self.layout.arrays(header, self.options).values()}
        arrays_of_file = []
        for path, expected in self.used.items():
            if path not in arrays:
                raise missing_field(path, header, arrays)
            stored = header.variables.get(full_name(group, path))
            if stored is None:
                raise missing_field(full_name(group, path), header, header.variables)
            units = self.layout.units(header, full_name(group, path))
            arrays_of_file.append(replace(arrays[path], shape=stored.shape, units=units))
            _require_same(arrays_of_file[-1], expected, stored.name, header, self.first)
            name = full_name(self.layout.groups(self.first)[0], path)
            _require_same_meaning(stored, self.first.variables.get(name), header, self.first)
        count = _extent(arrays_of_file, TIME, header)
        written = self.layout.written(header)
        if written is not None and count is not None and written < count:
            _logger.info("%s: %d of %d rows were written", header.path, written, count)
            count = written
        if count == 0:
            raise DataError("has no rows", where=f"{header.path}: {', '.join(self.used)}")
        return _extent(arrays_of_file, SIMULATION, header), count


def _require_same(
    found: Array, expected: Array, name: str, header: FileHeader, first: FileHeader
) -> None:
    def space(array: Array) -> list[tuple[str, int]]:
        pairs = zip(array.roles, array.shape, strict=False)
        return [(r, n) for r, n in pairs if r not in (TIME, SIMULATION)]

    where = f"{header.path}: variable {name}"
    differs = len(found.shape) != len(found.roles) or found.roles != expected.roles
    if differs or space(found) != space(expected):
        raise DataError(
            f"axes {dict(zip(found.roles, found.shape, strict=False))}",
            where=where,
            allowed=f"{dict(zip(expected.roles, expected.shape, strict=True))}, as in {first.path}",
            fix="write all files with one order of dims: ds.transpose(...)"
            if sorted(found.roles) == sorted(expected.roles) and found.roles != expected.roles
            else "the same dims in all files",
        )
    if found.units != expected.units and not same_unit(found.units, expected.units):
        raise DataError(
            f"unit {found.units!r}", where=where, allowed=f"{expected.units!r}, as in {first.path}"
        )


def _require_same_meaning(
    stored: StoredArray, expected: StoredArray | None, header: FileHeader, first: FileHeader
) -> None:
    differs = other_meaning(expected.attrs, stored.attrs) if expected is not None else None
    if differs is not None:
        raise DataError(
            differs[0],
            where=f"{header.path}: variable {stored.name}",
            allowed=f"{differs[1]}, as in {first.path}",
            fix="leave out the files of the other quantity, or give it another name",
        )


def _extent(arrays: Sequence[Array], role: str, header: FileHeader) -> int | None:
    """Return the common extent of the axes with a role; None if no array has one."""
    sizes = {a.path: n for a in arrays if (n := a.size(role)) is not None}
    if len(set(sizes.values())) > 1:
        raise DataError(
            "the variables differ in their number of samples: "
            + ", ".join(f"{name} has {n}" for name, n in sizes.items()),
            where=str(header.path),
        )
    return next(iter(sizes.values()), None)
