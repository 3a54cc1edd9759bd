"""Times of the files of a simulation on one clock, and whether their steps are equal."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from scitoolkit.core.data_facts import Step
from scitoolkit.core.errors import DataError
from scitoolkit.core.unit_conversion import conversion
from scitoolkit.core.units import same_unit
from scitoolkit.io.campaign.file_rows import FileRows
from scitoolkit.io.dates import of_one_kind, seconds_since

if TYPE_CHECKING:
    pass


def stored_times(series: FileRows) -> np.ndarray:
    """Return the times of rows as the file has them."""
    assert series.stored is not None
    return series.stored


def common_clock(series: Sequence[FileRows]) -> list[np.ndarray]:
    """Return the times of several parts on a common clock, as float64; dates in nanoseconds.

    Raises:
        DataError: units or calendars that cannot be converted into each other.
    """
    if len({s.clock for s in series}) <= 1:
        return [stored_times(s).astype(np.float64) for s in series]
    first = series[0]
    if not any(_is_date(s) for s in series):
        return [_in_unit_of(s, first) for s in series]
    for one in series:
        if _is_date(one) != _is_date(first):
            raise _other_clock(one, first)
    decoded = of_one_kind([_decoded(s) for s in series])
    # Counted from a date of the files: float64 resolves half a microsecond over a century.
    origin = decoded[0][0]
    try:
        return [1e9 * seconds_since(values, origin) for values in decoded]
    except TypeError:  # dates of two calendars have no difference
        other = next((s for s in series if s.clock[1] != first.clock[1]), series[-1])
        raise _other_clock(other, first) from None


def _is_date(series: FileRows) -> bool:
    return " since " in str(series.clock[0] or "")


def _in_unit_of(series: FileRows, first: FileRows) -> np.ndarray:
    """Return plain times in the unit of the first part."""
    own, unit = (str(s.clock[0] or "") for s in (series, first))
    values = stored_times(series).astype(np.float64)
    if same_unit(own, unit):
        return values
    line = conversion(own, unit) if own and unit else None
    # Times convert by a factor; a unit with an offset, such as degC, is none of time.
    if line is None or line[1]:
        raise _other_clock(series, first)
    return values * line[0]


def _other_clock(series: FileRows, first: FileRows) -> DataError:
    def text(one: FileRows) -> str:
        unit, calendar = one.clock
        return f"unit {unit or 'unknown'}" + (f", calendar {calendar}" if calendar else "")

    return DataError(
        f"times in {text(series)}",
        where=series.path,
        allowed=f"{text(first)}, as in {first.path}",
        fix="write the times of all files in one unit and calendar",
    )


def _decoded(series: FileRows) -> np.ndarray:
    times = series.times("time")
    assert times is not None
    return times.values


def require_same_step(
    grouped: dict[str, list[FileRows]], refuse: Callable[[str, DataError], None]
) -> None:
    """Reject simulations whose median time step differs from that of the others.

    Args:
        grouped: the series of each simulation.
        refuse: called with the name of a simulation and the error.
    """
    timed = {n: m for n, m in grouped.items() if all(s.stored is not None for s in m)}
    clocks = iter(common_clock([s for members in timed.values() for s in members]))
    steps = {}
    for name, members in timed.items():
        gaps = np.diff(np.concatenate([next(clocks) for _ in members]))
        if len(gaps):
            steps[name] = float(np.median(gaps))
    if not steps:
        return
    # The low median is the step of an existing simulation, which the message names.
    typical = statistics.median_low(steps.values())
    for name, step in steps.items():
        if not abs(step - typical) <= 1e-2 * abs(typical):
            usual = next(n for n, other in steps.items() if other == typical)
            clocks_of = {s.clock[0] for members in timed.values() for s in members}
            unit = timed[name][0].clock[0] if len(clocks_of) == 1 else None
            refuse(
                name,
                DataError(
                    f"simulation {name} has a time step of {_length(step, timed[name], unit)}",
                    where=timed[name][0].path,
                    allowed=f"{_length(typical, timed[name], unit)}, as simulation {usual}",
                    fix="remove it, or write all simulations at the same interval",
                ),
            )


def _length(step: float, members: Sequence[FileRows], unit: Any) -> str:
    """Return a step of the common clock as text: in the unit of the files, of dates in hours."""
    if not _is_date(members[0]):
        return f"{step:g} {unit or members[0].clock[0] or ''}".strip()
    # Dates with several units are counted in nanoseconds, as xarray writes those of datetime64.
    word = "nanoseconds" if unit is None else str(unit).partition(" ")[0]
    line = (1e-9, 0.0) if word == "nanoseconds" else conversion(word, "s")
    if line is None:
        return f"{step:g} {word}"
    return str(Step(step * line[0], "s", step * line[0], step * line[0]))
