"""Parameters of simulations: one number per simulation, from the files or a CSV table."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.suggest import nearest_name
from scitoolkit.core.unit_conversion import conversion
from scitoolkit.core.units import same_unit, stated_unit
from scitoolkit.io.campaign.campaign import Campaign
from scitoolkit.io.campaign.campaign_layout import SIMULATION, Array
from scitoolkit.io.campaign.channels import Channel
from scitoolkit.io.campaign.dim_roles import named_dims
from scitoolkit.io.campaign.headers import FileHeader, StoredArray, full_name
from scitoolkit.io.loader.file_source import RowSet
from scitoolkit.io.loader.files import Counter
from scitoolkit.io.loader.packing import Packing
from scitoolkit.io.loader.rows import VariableLayout

Scale = Literal["linear", "log"]
_GROUPS = ("", "scalars/")
"""Groups in which scalars are searched; `scalars/` is that of the Well."""


def with_parameters(
    campaign: Campaign, scales: Mapping[str, Scale], table: Path | None = None
) -> Campaign:
    """Return a campaign with a channel for each parameter, constant within a simulation.

    Args:
        campaign: the simulations.
        scales: {name: `linear`, or `log` for the common logarithm}.
        table: CSV file with one line per simulation; see `parameter_values`.

    Raises:
        DataError: a simulation has no value or an invalid one, or a field has the same name.
    """
    if not scales:
        return campaign
    channels, values = dict(campaign.channels), {}
    for name, scale in scales.items():
        if name in channels or name in campaign.arrays:
            raise DataError(f"{name} is also a field", where="data.parameters")
        numbers, unit = parameter(campaign, name, table)
        if scale == "log":
            _require_positive(campaign, name, numbers)
            numbers, unit = np.log10(numbers), f"log10({unit})" if unit else ""
        values[name] = numbers
        channels[name] = Channel(name, Array(name, (), (), unit, _long_name(name, scale)))
    return replace(campaign, channels=channels, parameters=values)


def _long_name(name: str, scale: Scale) -> str:
    return f"log10({name})" if scale == "log" else ""


def _require_positive(campaign: Campaign, name: str, values: np.ndarray) -> None:
    if not (values > 0).all():
        worst = int(np.argmin(values))
        raise DataError(
            f"{name} is {values[worst]:g} in simulation {campaign.labels[worst]}",
            where=f"data.parameters.{name}: log",
            allowed="positive numbers",
            fix=f"data.parameters.{name}=linear",
        )


def parameter_values(campaign: Campaign, name: str, table: Path | None = None) -> np.ndarray:
    """Return the values of a parameter, (simulations,) float64; see `parameter`."""
    return parameter(campaign, name, table)[0]


def parameter(campaign: Campaign, name: str, table: Path | None = None) -> tuple[np.ndarray, str]:
    """Return the values of a parameter, (simulations,) float64, and their unit if a file states it.

    The values are in the first unit that a file states. The source is a column of the table if it
    has one of this name; otherwise an attribute of the file or of the simulation's group, a scalar
    variable, or a vector with one value per simulation.

    Args:
        campaign: the simulations.
        name: of the parameter.
        table: CSV file with a header line. Its first column names the simulations by label or by
            file name.

    Raises:
        DataError: a simulation has no value, one that is not finite, or one whose unit measures
            something else.
    """
    suffixes = {Path(path).suffix for path in campaign.segments.files.paths}
    columns = {} if table is None else _columns(table, campaign.labels, suffixes)
    if name in columns:
        stated, unit = columns[name], ""
        where = str(table)
    else:
        stated, unit = _in_files(campaign, name, [*columns])
        where = str(campaign.files[0].parent)
    missing = [label for label, value in zip(campaign.labels, stated, strict=True) if value is None]
    if missing:
        raise DataError(
            f"no {name} for {_listed(missing)} of {len(stated)} simulations",
            where=where,
            fix="add it to the files, or give a table: data.parameter_table=runs.csv",
        )
    values = np.array(stated, np.float64)
    if not np.isfinite(values).all():
        bad = [campaign.labels[int(i)] for i in np.flatnonzero(~np.isfinite(values))]
        raise DataError(f"{name} is not a finite number for {_listed(bad)}", where=where)
    return values, unit


def _listed(labels: Sequence[str]) -> str:
    shown = ", ".join(labels[:3])
    return shown if len(labels) <= 3 else f"{shown} and {len(labels) - 3} more"


def _in_files(
    campaign: Campaign, name: str, columns: Sequence[str]
) -> tuple[list[float | None], str]:
    """Return the parameter from the files of each simulation, None if they lack it, and its unit.

    Raises:
        DataError: no file has it, or files of one simulation have different values.
    """
    unit = ""
    segments = campaign.segments
    numbers: list[float | None] = [None] * len(campaign.labels)
    for segment in range(len(segments)):
        header = segments.header(int(segments.file[segment]))
        simulation = int(segments.simulation[segment])
        group = segments.groups[segments.group[segment]]
        named = _stated(header, group, int(segments.member[segment]), name, campaign)
        if named is None:
            continue
        value, own = named
        unit = unit or own
        if own and not same_unit(own, unit):
            line = conversion(own, unit)
            if line is None:
                what = f"{name} is in {own}, and in {unit} elsewhere"
                raise DataError(what, where=str(header.path))
            value = value * line[0] + line[1]
        before = numbers[simulation]
        # NaN in both files is no contradiction; that it is no number is refused later.
        if before is not None and value != before and not (value != value and before != before):
            raise DataError(
                f"{name} is {value:g}, and {before:g} in another file of simulation "
                f"{campaign.labels[simulation]}",
                where=str(header.path),
            )
        numbers[simulation] = value
    if all(value is None for value in numbers):
        header = segments.header(int(segments.file[0]))
        names = [*columns, *_candidates(header)]
        near = nearest_name(name, names)
        raise DataError(
            f"no attribute, scalar or column {name}",
            where=f"{header.path}: data.parameters",
            allowed=", ".join(sorted(set(names))) or "none is there",
            fix=f"data.parameters=[{near}]" if near else "data.parameter_table=runs.csv",
        )
    return numbers, unit


def varying(campaign: Campaign) -> dict[str, tuple[float, float]]:
    """Return {name: (minimum, maximum)} of the numbers in the files that vary by simulation."""
    ranges = {}
    header = campaign.segments.header(int(campaign.segments.file[0]))
    for name in dict.fromkeys(_candidates(header)):
        try:
            values = parameter_values(campaign, name)
        except DataError:
            continue  # not available for every simulation
        if name not in campaign.channels and np.ptp(values):
            ranges[name] = (float(values.min()), float(values.max()))
    return ranges


def _stated(
    header: FileHeader, group: str, member: int, name: str, campaign: Campaign
) -> tuple[float, str] | None:
    """Return the number of a member, from the first place that has one, and the unit stated there.

    Raises:
        DataError: a vector along another dim than that of the members.
    """
    along_other: DataError | None = None
    prefixes = dict.fromkeys([f"{group}/" if group else "", *_GROUPS])
    for prefix in prefixes:
        if (value := _number(header.attrs.get(prefix + name))) is not None:
            return value, ""
        stored = header.get(prefix + name)
        if stored is None or stored.values is None:
            continue
        values = Packing.of(stored.values.dtype, stored.attrs).unpack(stored.values).ravel()
        unit = stated_unit(stored.attrs)
        if values.size == 1:
            return float(values[0]), unit
        if member >= 0:
            along_other = _along_other(header, group, stored, campaign)
            if along_other is None:
                return float(values[member]), unit
    if along_other is not None:
        raise along_other
    return None


def _along_other(
    header: FileHeader, group: str, vector: StoredArray, campaign: Campaign
) -> DataError | None:
    """Return an error if a vector is along another dim than the members; None if it is not."""
    options = campaign.options
    for array in (of_array[0].array for of_array in campaign.arrays.values()):
        stored = header.variables.get(full_name(group, array.path))
        if stored is None or SIMULATION not in array.roles:
            continue
        axis = array.roles.index(SIMULATION)
        dims = [
            (own[0], along[axis])
            for own, along in (
                (vector.dims, stored.dims),
                (named_dims(header, vector, options), named_dims(header, stored, options)),
            )
        ]
        # Without names, the number of values alone tells.
        same = any(own == other or own.startswith("dim_") for own, other in dims)
        same = same or all(other.startswith("dim_") for _, other in dims)
        if same and vector.shape[0] == stored.shape[axis]:
            return None
        return DataError(
            f"{vector.shape[0]} values along {dims[1][0]}",
            where=f"{header.path}: variable {vector.name}: data.parameters",
            allowed=f"a value for each of the {stored.shape[axis]} simulations ({dims[1][1]})",
        )
    return None


def _number(value: object) -> float | None:
    """Return a number, or text that represents one; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None


def _candidates(header: FileHeader) -> list[str]:
    """Return the names of numeric attributes and of scalars in a header."""
    attributes = [k.rpartition("/")[2] for k, v in header.attrs.items() if _number(v) is not None]
    return [*attributes, *(v.name.rpartition("/")[2] for v in header.schema.small if not v.shape)]


def _columns(
    table: Path, labels: Sequence[str], suffixes: set[str]
) -> dict[str, list[float | None]]:
    """Return the columns of a table in the order of the simulations.

    Lines of other simulations are ignored.

    Args:
        table: CSV file.
        labels: of the simulations.
        suffixes: of their files, which names in the table may end with.

    Raises:
        DataError: the table cannot be read, names a simulation ambiguously or twice, or names none
            of the simulations.
    """
    try:
        # Spreadsheets begin a file with a byte order mark, which would belong to the first name.
        with open(table, encoding="utf-8-sig", newline="") as file:
            lines = [line for line in csv.reader(file) if line]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot be read ({error})", where=str(table)) from None
    if len(lines) < 2 or len(lines[0]) < 2:
        raise DataError(
            "no lines with a simulation and its numbers",
            where=str(table),
            allowed="a header line, `simulation,NAME,...`, and a line for each simulation",
        )
    names = [name.strip() for name in lines[0]]
    number_of = _numbers_of(labels, suffixes)
    columns: dict[str, list[float | None]] = {n: [None] * len(labels) for n in names[1:]}
    seen: dict[int, int] = {}
    for number, line in enumerate(lines[1:], start=2):
        simulations = number_of(line[0].strip())
        if not simulations:
            continue  # a simulation that is not in these files
        if len(simulations) > 1:
            raise DataError(
                f"{line[0]} is the name of {len(simulations)} simulations",
                where=f"{table}, line {number}",
                allowed=_listed([labels[i] for i in simulations]),
            )
        (at,) = simulations
        if at in seen:
            raise DataError(
                f"simulation {line[0]} is in lines {seen[at]} and {number}", where=str(table)
            )
        if len(line) != len(names):
            raise DataError(
                f"{len(line)} columns", where=f"{table}, line {number}", allowed=str(len(names))
            )
        seen[at] = number
        for name, text in zip(names[1:], line[1:], strict=True):
            value = _number(text.strip())
            # NaN for text that is no number, so that it is not reported as a missing value.
            columns[name][at] = math.nan if value is None and text.strip() else value
    if not seen:
        raise DataError(
            f"none of the simulations: its first one is {lines[1][0]!r}",
            where=str(table),
            allowed=_listed(labels),
        )
    return columns


def _numbers_of(labels: Sequence[str], suffixes: set[str]) -> Callable[[str], list[int]]:
    """Return a function from a name in a table to the numbers of the simulations it matches.

    A name matches the equal label, else labels with the same file name. Only suffixes of the
    campaign's files are dropped: `nu_0.3` must not match `nu_0.1`.
    """

    def short(name: str) -> str:
        path = Path(name)
        return path.stem if path.suffix in suffixes else path.name

    exact = {label: [i] for i, label in enumerate(labels)}
    by_file: dict[str, list[int]] = {}
    for i, label in enumerate(labels):
        by_file.setdefault(short(label), []).append(i)
    return lambda name: exact.get(name) or by_file.get(short(name), [])


class ParameterRows(RowSet):
    """Rows of one parameter: a number for each row, constant within a simulation.

    Args:
        campaign: the simulations.
        name: of the parameter.
    """

    axis = None
    members_together = 1

    def __init__(self, campaign: Campaign, name: str) -> None:
        index = campaign.index
        self.name, self.index = name, index
        self.values: np.ndarray = self.values_of(campaign)
        self.bounds, self.row_shape = index.rows, ()
        self.dtype, self.row_nbytes, self.units = np.dtype(np.float64), 8, ""
        self.unit_rows = self.chunk_rows = np.ones(len(index.rows) - 1, np.int64)
        self.readers = []
        self.packings: list[Packing] = [Packing(self.dtype)]
        self._reader = _NoFile(name, index.num_rows)

    def values_of(self, campaign: Campaign) -> np.ndarray:
        """Return the value of each simulation."""
        return campaign.parameters[self.name]

    def reader(self, file: int) -> _NoFile:  # type: ignore[override]
        """Return a placeholder with the layout of the rows."""
        return self._reader

    def read_into(self, first: int, last: int, wanted: np.ndarray, out: np.ndarray) -> None:
        """Write the values of the rows `wanted` into `out`."""
        out[...] = self.values[self.index.simulation_of(wanted)]

    def members(self, segments: Sequence[int], first: int, last: int) -> np.ndarray:
        """Return the same rows of some segments, (segments, rows)."""
        values = self.values[self.index.simulation[list(segments)]]
        return np.repeat(values[:, None], last - first, axis=1)

    def channel(self, values: np.ndarray, channel: Channel) -> np.ndarray:
        """Return `values`, the only channel."""
        return values

    def cost(self, first: int, last: int) -> tuple[int, int]:
        """Return 0 requests and 0 bytes."""
        return 0, 0

    def missing(self) -> list[tuple[int, int]]:
        """Return no rows: every value is known."""
        return []

    def counters(self) -> list[Counter]:
        """Return no counters: no file is read."""
        return []


class RowValues(ParameterRows):
    """Rows of a number that differs from row to row and that no file holds."""

    def values_of(self, campaign: Campaign) -> np.ndarray:
        """Return the value of each row."""
        return campaign.row_values[self.name]

    def read_into(self, first: int, last: int, wanted: np.ndarray, out: np.ndarray) -> None:
        """Write the values of the rows `wanted` into `out`."""
        out[...] = self.values[wanted]

    def members(self, segments: Sequence[int], first: int, last: int) -> np.ndarray:
        """Return the same rows of some segments, (segments, rows)."""
        starts = self.index.rows[list(segments)]
        return np.asarray(self.values[starts[:, None] + np.arange(first, last)])


class _NoFile:
    """Placeholder for a reader, for values in memory.

    Args:
        name: of the parameter.
        num_rows: rows of the campaign.
    """

    file = None
    unit_rows = 1

    def __init__(self, name: str, num_rows: int) -> None:
        self.layout: VariableLayout = VariableLayout(
            name,
            "",
            (num_rows,),
            ("row",),
            np.dtype(np.float64),
            None,
            (),
            0,
            (slice(0, num_rows),),
            {},
        )
