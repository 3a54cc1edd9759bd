"""Campaigns of simulations: index of rows in files, and channels of each row."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.notebook import html_facts, html_page, html_table
from scitoolkit.io.campaign.cache import IndexCache
from scitoolkit.io.campaign.campaign_layout import (
    COMPONENT,
    SIMULATION,
    TIME,
    Array,
    CampaignLayout,
    CampaignOptions,
)
from scitoolkit.io.campaign.channels import (
    Channel,
    Coordinate,
    Part,
    coordinates_of,
    require_coordinates,
)
from scitoolkit.io.campaign.dim_roles import auxiliary_names, is_lead
from scitoolkit.io.campaign.entries import Entry, entries_of, require_same_entries
from scitoolkit.io.campaign.files import find_files, of_known_formats
from scitoolkit.io.campaign.headers import FileHeader, full_name
from scitoolkit.io.campaign.index import SampleIndex
from scitoolkit.io.campaign.layouts import missing_field
from scitoolkit.io.campaign.mask import Mask
from scitoolkit.io.campaign.more_layouts import layout_of
from scitoolkit.io.campaign.no_grid import require_grid
from scitoolkit.io.campaign.places import require_same_places
from scitoolkit.io.campaign.plain import Plain
from scitoolkit.io.campaign.segments import Segments, find_segments
from scitoolkit.io.campaign.staggered import centred
from scitoolkit.io.campaign.turns import find_turns
from scitoolkit.io.dates import joined_times
from scitoolkit.io.fields import PathLike

if TYPE_CHECKING:
    import xarray as xr


@dataclass(frozen=True)
class Campaign:
    """Simulations in files, opened by `open_campaign`.

    Attributes:
        options: options it was opened with.
        names: {requested variable: names of its channels}.
        channels: all channels by name.
        index: rows of simulations and segments.
        segments: location of each segment in the files.
        labels: name of each simulation.
        layout: name of the layout.
        skipped: {skipped simulation or file: reason}.
        parameters: {channel of a parameter: value per simulation}.
        row_values: {channel that files do not hold: value per row}.
        mask: cells with values; None if all cells have values.
    """

    options: CampaignOptions
    names: dict[str, tuple[str, ...]]
    channels: dict[str, Channel]
    index: SampleIndex
    segments: Segments
    labels: tuple[str, ...]
    layout: str
    skipped: dict[str, str] = field(default_factory=dict)
    parameters: dict[str, np.ndarray] = field(default_factory=dict)
    mask: Mask | None = None
    row_values: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def unstored(self) -> set[str]:
        """The channels whose values no array of the files holds."""
        return {*self.parameters, *self.row_values}

    def _repr_html_(self) -> str:
        """Return numbers of simulations, rows and files, and the channels, for a notebook."""
        facts = {
            "layout": self.layout,
            "simulations": self.index.num_simulations,
            "rows": self.index.num_rows,
            "files": len(self.files),
            "skipped": len(self.skipped),
        }
        channels = [[c.name, c.array.path, c.array.units] for c in self.channels.values()]
        table = html_table(["channel", "array", "unit"], channels)
        return html_page("Campaign", (), html_facts(facts), table)

    @property
    def files(self) -> list[Path]:
        """The files, in the order of the segments."""
        return [Path(p) for p in self.segments.used_paths()]

    @cached_property
    def arrays(self) -> dict[str, tuple[Channel, ...]]:
        """The channels of each array, by the path of the array in the files."""
        channels_of: dict[str, list[Channel]] = {}
        for channel in self.channels.values():
            channels_of.setdefault(channel.array.path, []).append(channel)
        return {path: tuple(channels) for path, channels in channels_of.items()}

    @cached_property
    def coordinates(self) -> dict[str, Coordinate]:
        """The coordinates of the first simulation: {space dim: (dims, values, attributes)}.

        Raises:
            DataError: a coordinate and a field of different sizes.
        """
        return self.coordinates_of(0)

    def coordinates_of(self, simulation: int) -> dict[str, Coordinate]:
        """Return the coordinates of a simulation; see `coordinates`."""
        # Segments are sorted by simulation: this is the first one of it.
        segment = int(np.searchsorted(self.index.simulation, simulation))
        stored = coordinates_of(self.segments, segment, self.channels.values())
        # Rows of turned dims are read in the order of the first simulation.
        turned = {d for d, *_ in self.segments.turns.get(segment, ()) if d in stored}
        return stored | {d: self.coordinates.get(d, stored[d]) for d in turned}

    def cells_of(self, dim: str) -> slice:
        """Return the entries of a space dim that are read: all, but where fields are centred."""
        for channel in self.channels.values():
            array = channel.array
            if array.centring and dim in array.roles:
                axis, size = array.centring[array.roles.index(dim)], array.size(dim)
                if axis is not None and size is not None:
                    return slice(axis.first, axis.first + size)
        return slice(None)

    def other_grids(self) -> Iterator[tuple[int, dict[str, Coordinate]]]:
        """Yield (simulation, coordinates) where the coordinates differ from the first ones."""
        first = self.coordinates
        # By file and group, since simulations that share both share the coordinates: a file with
        # many members is read once.
        at: dict[tuple[int, int], dict[str, Coordinate] | None] = {}
        _, segments = np.unique(self.index.simulation, return_index=True)
        for simulation, segment in enumerate(segments.tolist()):
            place = int(self.segments.file[segment]), int(self.segments.group[segment])
            if place not in at:
                own = self.coordinates_of(simulation)
                pairs = [(x, first[dim][1]) for dim, (_, x, _) in own.items() if dim in first]
                at[place] = None if all(np.array_equal(*pair) for pair in pairs) else own
            if (other := at[place]) is not None:
                yield simulation, other

    def where(self, row: int) -> str:
        """Return the file, simulation and row number of a row, for messages."""
        simulation, number, segment = self.index.locate(row)
        path = self.segments.path(segment)
        return f"{path}: simulation {self.labels[simulation]}, row {number}"

    @cached_property
    def times(self) -> xr.Variable | None:
        """The decoded times of the first simulation, (rows,); None without times."""

        dim, first = self.options.sample_dim, np.flatnonzero(self.index.simulation == 0)
        parts = [self.segments.times(int(k), self.options, self.arrays) for k in first]
        timed = [p for p in parts if p is not None]
        if len(timed) < len(parts):
            return None
        return timed[0] if len(timed) == 1 else joined_times(timed, dim)

    def template(self) -> xr.Dataset:
        """Return the first simulation as a dataset with coordinates and units.

        All values are NaN.
        """
        import xarray as xr

        dim, rows = self.options.sample_dim, int(self.index.bounds[1])
        variables = {
            c.name: (
                (dim, *c.dims),
                np.broadcast_to(np.float32(np.nan), (rows, *c.shape)),
                c.array.attributes(),
            )
            for c in self.channels.values()
        }
        dataset = xr.Dataset(variables, coords=dict(self.coordinates))
        return dataset if self.times is None else dataset.assign_coords({dim: self.times})

    def describe(self) -> dict[str, Any]:
        """Return a summary as plain data, for `scitoolkit inspect` and dry runs."""
        rows = np.diff(self.index.bounds)
        ranges = {n: [float(v.min()), float(v.max())] for n, v in self.parameters.items()}
        valid = None if self.mask is None else self.mask.valid
        rare = {
            "left_out": self.skipped,
            "gaps": len(self.index.breaks),
            "parameters": ranges,
            "valid_cells": [] if valid is None else [int(valid.sum()), valid.size],
        }
        return {
            "layout": self.layout,
            "files": len(self.segments.used_paths()),
            "simulations": self.index.num_simulations,
            "rows": int(self.index.num_rows),
            "rows_of_a_simulation": [int(rows.min()), int(rows.max())],
            "first_simulations": list(self.labels[:5]),
            **{name: value for name, value in rare.items() if value},
            "channels": {
                c.name: {
                    "variable": c.array.path,
                    "axes": list(c.array.roles),
                    "shape": list(c.shape),
                    "units": c.array.units,
                }
                for c in self.channels.values()
                if c.name not in self.parameters
            },
        }


def open_campaign(
    path: PathLike | Sequence[PathLike],
    variables: Sequence[str] | None = None,
    options: CampaignOptions | None = None,
    *,
    cache: PathLike | None = None,
    keep: bool = True,
) -> Campaign:
    """Open a campaign: find simulations, rows and channels in files without reading fields.

    Args:
        path: a file, a glob, a directory, or a list of files.
        variables: names, or `velocity_0` for one component; by default all variables with the
            maximum number of dims.
        options: settings that override detection.
        cache: folder of the cached index, in which only changed files are updated.
        keep: whether to write a new index to the cache.

    Raises:
        DataError: a file is damaged or differs from the first, a variable is missing, or the
            layout is ambiguous.

    Example:
        >>> import xarray as xr
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> for i in range(3):
        ...     xr.Dataset({"u": (("time", "x"), np.zeros((4, 8)))}).to_netcdf(
        ...         folder / f"run{i}.nc", engine="h5netcdf")
        >>> campaign = open_campaign(folder, ["u"])
        >>> campaign.labels, campaign.index.bounds.tolist()
        (('run0', 'run1', 'run2'), [0, 4, 8, 12])
    """
    options, candidates = options or CampaignOptions(), find_files(path)
    store = IndexCache.of(cache, path, variables, options)
    segments = store.unchanged(candidates)
    fresh = segments is None
    if segments is None:
        files = candidates.of(of_known_formats(candidates, path))
        segments = Segments.empty(files, store.headers(files))
    # One file stands for all: names and axes are read from it, and the others are compared with it.
    first = segments.reference(options)
    layout = layout_of(first)
    several = len(segments.files.paths) > 1
    steps = several or any(layout.step(first, group) for group in layout.groups(first)[:1])
    names, channels = _channels(first, layout, variables, options, steps)
    if fresh:
        used = {c.array.path: c.array for c in channels.values()}
        segments = find_segments(segments, first, layout, used, options)
        require_coordinates(segments, channels.values())
        require_same_entries(segments, used.values(), options)
        if several:
            require_same_places(segments, channels.values())
        if several or len(segments.groups) > 1:
            turned = find_turns(segments, channels.values())
            tuples = {k: [astuple(t) for t in v] for k, v in turned.items()}
            segments = replace(segments, turns=tuples)
        if keep:
            store.save(candidates, segments)
    if options.staggered == "centres":
        channels = centred(segments, channels, options)
    channels = _shifted(channels, options.offsets or {})
    index = SampleIndex(segments.simulation, segments.count, _breaks(segments))
    labels, skipped = tuple(segments.labels), segments.skipped
    return Campaign(options, names, channels, index, segments, labels, layout.name, skipped)


def _shifted(channels: Mapping[str, Channel], offsets: Mapping[str, float]) -> dict[str, Channel]:
    """Return the channels of variables from whose values a number is subtracted."""
    shifted = dict(channels)
    for name, offset in offsets.items():
        own = [c for c in channels.values() if name in (c.name, c.array.path)]
        if not own:
            names = ", ".join(channels)
            raise DataError("the variable is not read", where=f"offsets, {name}", allowed=names)
        for c in own:
            text = f"{c.array.long_name or name} minus {offset!r}"
            # Less a number, the values are no longer the quantity of the standard name.
            array = replace(c.array, offset=offset, long_name=text, standard_name="")
            shifted[c.name] = replace(c, array=array)
    return shifted


def _breaks(segments: Segments) -> list[int]:
    """Return the rows of the campaign before which times are missing."""
    starts = np.concatenate([[0], np.cumsum(segments.count)])
    return [int(starts[k]) + row for k, rows in segments.breaks.items() for row in rows]


def _require_no_lead(header: FileHeader, channel: Channel, options: CampaignOptions) -> None:
    """Refuse values along a time and a lead, which is no direction in space.

    Raises:
        DataError: with the dim, unless `options.grid` names it.
    """
    roles, path = channel.array.roles, channel.array.path
    if TIME not in roles:
        return
    for dim in set(roles) - {TIME} - set(options.grid or ()):
        if is_lead(dim, layout_of(header).coordinate(header, "", dim, path)):
            raise DataError(
                f"{dim} is a time beside the one that counts the samples, such as the lead of a "
                "forecast",
                where=f"{header.path}: variable {path}",
                allowed="one time, and dims of space, which data.grid may name",
                fix=f"data.sample_dim={dim}: each forecast is a simulation (init --sample-dim "
                f"{dim}); or data.select={{{dim}: VALUE}}: one lead",
            )


def _is_complex(header: FileHeader, layout: type[CampaignLayout], array: Array) -> bool:
    group = layout.groups(header)[0]
    stored = header.variables.get(full_name(group, array.path))
    return stored is not None and np.dtype(stored.dtype).kind == "c"


def _channels(
    header: FileHeader,
    layout: type[CampaignLayout],
    wanted: Sequence[str] | None,
    options: CampaignOptions,
    several: bool,
) -> tuple[dict[str, tuple[str, ...]], dict[str, Channel]]:
    arrays = layout.arrays(header, options)
    if not arrays:
        raise DataError(
            "no array of numbers that can be read",
            where=str(header.path),
            allowed="datasets of numbers in the file itself: links to other files are not followed",
            fix="scitoolkit inspect FILE",
        )
    chosen = options.select or options.levels != "dim" or options.staggered != "stored"
    if chosen and layout is not Plain:
        raise DataError(
            f"entries of dims cannot be chosen or centred in the layout {layout.name}",
            where=str(header.path),
            fix="leave out data.select, data.levels and data.staggered",
        )
    auxiliary = auxiliary_names(header)
    group = layout.groups(header)[0]
    expanded: dict[str, tuple[Channel, ...]] = {}
    without: dict[str, DataError] = {}
    for name, array in arrays.items():
        path = full_name(group, array.path)
        try:
            entries = entries_of(header, path, array, options)
        except DataError as error:
            without[name] = error  # a field of another group, that may not be asked for
            continue
        expanded[name] = _components(name, array, entries, _is_complex(header, layout, array))
    single = {c.name: (c,) for of_variable in expanded.values() for c in of_variable}
    if wanted is None:
        most = max((len(a.shape) for a in arrays.values()), default=0)
        wanted = list(
            {
                a.path: n
                for n, a in reversed(arrays.items())
                if len(a.shape) == most and n != options.sample_dim and a.path not in auxiliary
            }.values()
        )
        if not wanted:
            raise DataError(
                "no field among its arrays: those of the most dims describe others",
                where=str(header.path),
                allowed=", ".join(arrays),
                fix="name the fields: data.inputs and data.outputs",
            )
    names: dict[str, tuple[str, ...]] = {}
    channels: dict[str, Channel] = {}
    for name in dict.fromkeys(wanted):
        of_variable = expanded.get(name) or single.get(name) or _pair(name, arrays)
        if not of_variable:
            if name in without or not expanded:
                raise without.get(name) or next(iter(without.values()))
            raise missing_field(name, header, arrays)
        for channel in of_variable:
            require_grid(header, channel.array, options)
            _require_no_lead(header, channel, options)
        names[name] = tuple(c.name for c in of_variable)
        channels |= {c.name: c for c in of_variable}
    _require_samples(header, channels, options, several)
    return names, channels


def _components(
    name: str, array: Array, entries: Sequence[Sequence[Entry]], is_complex: bool
) -> tuple[Channel, ...]:
    """Return a channel for each component and part, named by its entries: `u_0`, `u_real`."""
    short = name.replace("/", "_")
    return tuple(
        Channel(
            "_".join([short, *(end for _, end in ends if end), *([part] if part else [])]),
            array,
            tuple(number for number, _ in ends),
            part,
        )
        for ends in itertools.product(*entries)
        for part in (_PARTS if is_complex else ("",))
    )


def _numbered(array: Array) -> list[list[Entry]]:
    pairs = zip(array.roles, array.shape, strict=True)
    return [[(k, str(k)) for k in range(n)] for role, n in pairs if role == COMPONENT]


_PARTS: tuple[Part, ...] = ("real", "imag")
_PAIRS = (("_real", "_imag"), ("_re", "_im"), (".real", ".imag"), ("/real", "/imag"))
"""Endings by which files store the two parts of complex numbers."""


def _pair(name: str, arrays: Mapping[str, Array]) -> tuple[Channel, ...]:
    """Return the channels of complex numbers that a file stores as two real variables."""
    for endings in _PAIRS:
        both = [a for ending in endings if (a := arrays.get(name + ending)) is not None]
        # Two variables that differ in more than their name are two fields, not parts of one.
        if len(both) == 2 and len({(a.roles, a.shape, a.units) for a in both}) == 1:
            short = [_components(f"{name}@", array, _numbered(array), False) for array in both]
            return tuple(
                replace(channel, name=f"{channel.name.replace('@', '')}_{part}")
                for pair in zip(*short, strict=True)
                for part, channel in zip(_PARTS, pair, strict=True)
            )
    return ()


def _require_samples(
    header: FileHeader, channels: Mapping[str, Channel], options: CampaignOptions, several: bool
) -> None:
    """Raise DataError for variables without a sample dim, unless each file is one sample."""
    arrays = [c.array for c in channels.values()]
    counted = [a for a in arrays if TIME in a.roles or SIMULATION in a.roles]
    named = options.sample_dim != "time" and not any(TIME in a.roles for a in arrays)
    if counted and not named:
        return
    if several and not named and not any(r.startswith("dim_") for a in arrays for r in a.roles):
        return
    if several and options.pattern is not None:
        return
    array = arrays[0]
    raise DataError(
        f"no dim {options.sample_dim!r}; the dims are {', '.join(array.roles)}",
        where=f"{header.path}: variable {array.path}",
        fix="data.sample_dim=NAME of the dim that counts samples, or data.dims for a file without "
        "names",
    )
