"""Which stretches of rows belong to one simulation: by their times, else by the names of files."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.log import get_logger
from scitoolkit.io.campaign.headers import Stored, natural_key
from scitoolkit.io.campaign.layouts import Layout, Options, Plain

_logger = get_logger(__name__)
_TOLERANCE = 1e-3


@dataclass(frozen=True)
class Series:
    """Consecutive rows of one simulation in one file.

    Attributes:
        group: the group of the file that they are in, "" for its root.
        member: their number along the simulation axis, -1 without one.
        count: rows.
        times: decoded, (count,), None where the file states none.
        single: the file has no axis of time: it holds one sample.
    """

    path: Path
    group: str
    member: int
    count: int
    times: xr.Variable | None
    single: bool

    @classmethod
    def of(
        cls, path: Path, group: str, member: int, count: int | None, stored: Stored | None,
        layout: type[Layout], options: Options,
    ) -> Series:  # fmt: skip
        """Return the rows, and their times where the coordinate fits them.

        Raises:
            DataError: the coordinate is longer or shorter than the data, or goes backward.
        """
        rows = 1 if count is None else count
        times = None
        if stored is not None and stored.values is not None:
            values = np.asarray(stored.values)
            values = values[max(member, 0)] if values.ndim == 2 else np.atleast_1d(values)
            if len(values) == rows + 1 and layout is not Plain:
                _logger.warning(
                    "%s: %s has %d values for %d rows; the last one is taken as the end of the "
                    "last step", path, stored.name, len(values), rows,
                )  # fmt: skip
                values = values[:rows]
            if len(values) != rows:
                raise DataError(
                    f"{len(values)} times for {rows} rows", where=f"{path}: variable {stored.name}",
                    fix="write as many times as rows: which rows belong to which is not known",
                )  # fmt: skip
            times = _decoded(values, stored, options.sample_dim, path)
            if options.lead:
                _require_increasing(times, f"{path}: variable {stored.name}")
        return cls(path, group, member, rows, times, count is None)

    @property
    def name(self) -> str:
        """The name of the simulation, if the file holds nothing of another one."""
        parts = [self.path.stem]
        parts += [self.group] if self.group else []
        parts += [str(self.member)] if self.member >= 0 else []
        return "/".join(parts)


def _decoded(values: np.ndarray, stored: Stored, dim: str, path: Path) -> xr.Variable:
    """Return times by the calendar that their attributes state."""
    kept = ("units", "calendar", "standard_name", "axis", "long_name")
    attrs = {k: v for k, v in stored.attrs.items() if k in kept}
    raw = xr.Dataset(coords={dim: (dim, values, attrs)})
    try:
        return xr.decode_cf(raw, decode_timedelta=False)[dim].variable.to_base_variable()
    except (ValueError, OverflowError) as error:
        raise DataError(f"its times cannot be decoded ({error})", where=str(path)) from None


def _require_increasing(times: xr.Variable, where: str) -> None:
    values = times.values
    if values.dtype.kind in "fM" and bool((values != values).any()):
        raise DataError("a time is missing (NaN)", where=where)
    ahead = np.asarray(values[1:] > values[:-1], dtype=bool)
    if not ahead.all():
        i = int(np.argmin(ahead)) + 1
        kind = "repeats" if values[i] == values[i - 1] else "goes backward"
        raise DataError(
            f"time {kind} at row {i} ({values[i - 1]} then {values[i]})", where=where,
            allowed="strictly increasing times within a simulation",
            fix="write a file for each simulation; after a restart, leave out the repeated rows",
        )  # fmt: skip


def simulations(
    series: Sequence[Series], options: Options
) -> tuple[list[str], list[int], list[Series]]:
    """Return names of simulations, and of every segment its simulation and its rows, sorted.

    Files are parts of one simulation where their times go on with the same step; otherwise each
    is a simulation. Files with one sample each are steps of a simulation by their names.

    Raises:
        DataError: the parts are not in order, or the names can be read in two ways.
    """
    if all(s.single for s in series) and len(series) > 1 and (options.lead or options.pattern):
        grouped = _by_names(series, options)
    elif options.files == "parts":
        grouped = {series[0].name: _in_time(series, required=True) or list(series)}
    else:
        grouped = _by_times(series, options)
    ordered = [s for members in grouped.values() for s in members]
    numbers = [k for k, members in enumerate(grouped.values()) for _ in members]
    _require_same_step(grouped)
    return list(grouped), numbers, ordered


def _by_times(series: Sequence[Series], options: Options) -> dict[str, list[Series]]:
    one_each = len({s.path for s in series}) == len(series)
    if options.files == "auto" and one_each and len(series) > 1:
        whole = _in_time(series)
        if whole is not None:
            _logger.info("%d files are parts of one simulation: their times go on", len(series))
            return {whole[0].name: whole}
        sets = _sets(series)
        joined = {key: _in_time(members) for key, members in sets.items()}
        if len(sets) < len(series) and all(joined.values()):
            return {key: members or [] for key, members in joined.items()}
    return _named(series)


def _named(series: Sequence[Series]) -> dict[str, list[Series]]:
    """Return every series as a simulation, by a name that no other has."""
    names = [s.name for s in series]
    if len(set(names)) < len(names):
        names = [str(s.path.with_name(s.name)) for s in series]
    if len(set(names)) < len(names):
        twice = next(n for n in names if names.count(n) > 1)
        raise DataError("the file is given twice", where=twice)
    return {name: [s] for name, s in zip(names, series, strict=True)}


def _sets(series: Sequence[Series]) -> dict[str, list[Series]]:
    """Return the files whose names differ in the last number only."""
    found: dict[str, list[Series]] = {}
    for one in series:
        stem = re.sub(r"\d+(?=\D*$)", "", one.path.stem)
        found.setdefault(str(one.path.with_name(stem)), []).append(one)
    return found


def _in_time(series: Sequence[Series], required: bool = False) -> list[Series] | None:
    """Return parts in the order of their times, None where those do not go on evenly.

    Raises:
        DataError: `required`, and the times of two parts overlap.
    """
    if any(s.times is None or not s.count for s in series):
        return None
    ordered = sorted(series, key=lambda s: _first_last(s)[0])
    gaps = []
    for before, after in itertools.pairwise(ordered):
        gaps.append(_difference(_first_last(after)[0], _first_last(before)[1]))
        if required and gaps[-1] <= 0:
            raise DataError(
                f"its times begin at {_first_last(after)[0]}, before those of {before.path} end "
                f"({_first_last(before)[1]})", where=str(after.path),
                fix="data.files=simulations, if each file is a simulation",
            )  # fmt: skip
    return ordered if required or _is_even(ordered, np.array(gaps)) else None


def _is_even(ordered: Sequence[Series], gaps: np.ndarray) -> bool:
    """Return whether the steps between parts are like those within, calendars allowed for."""
    inner = np.concatenate([np.diff(_numbers(s)) for s in ordered])
    if not len(inner) and len(gaps) > 1:
        inner = gaps[:1]
    if not len(inner) or gaps.min() <= 0:
        return False
    low, high = inner.min() * (1 - _TOLERANCE), inner.max() * (1 + _TOLERANCE)
    return bool((gaps >= low).all() and (gaps <= high).all())


def _first_last(series: Series) -> tuple[Any, Any]:
    assert series.times is not None
    return series.times.values[0], series.times.values[-1]


def _difference(later: Any, earlier: Any) -> float:
    gap = later - earlier
    if isinstance(gap, np.timedelta64):
        return float(gap / np.timedelta64(1, "ns"))
    return float(gap.total_seconds() * 1e9 if hasattr(gap, "total_seconds") else gap)


def _numbers(series: Series) -> np.ndarray:
    """Return times as float64, dates in nanoseconds since the first."""
    assert series.times is not None
    values = series.times.values
    if values.dtype.kind in "biuf":
        return values.astype(np.float64)
    return np.array([_difference(v, values[0]) for v in values])


def _require_same_step(grouped: dict[str, list[Series]]) -> None:
    """Refuse simulations whose typical time step differs from that of the first."""
    typical: tuple[str, float] | None = None
    for name, members in grouped.items():
        steps = [np.diff(_numbers(s)) for s in members if s.times is not None and s.count > 1]
        if not steps:
            continue
        step = float(np.median(np.concatenate(steps)))
        typical = typical or (name, step)
        if abs(step - typical[1]) > 1e-2 * abs(typical[1]):
            raise DataError(
                f"simulation {name} has a time step of {step:g}", where=str(members[0].path),
                allowed=f"{typical[1]:g}, as simulation {typical[0]}",
                fix="leave it out, or write all simulations at the same interval",
            )  # fmt: skip


def _by_names(series: Sequence[Series], options: Options) -> dict[str, list[Series]]:
    """Return files with one sample each by simulation, in the order of their steps."""
    keys = [_name_parts(s, options) for s in series]
    found: dict[str, list[tuple[int, Series]]] = {}
    for (simulation, step), one in zip(keys, series, strict=True):
        found.setdefault(simulation, []).append((step, one))
    out = {}
    for name in sorted(found, key=natural_key):
        members = [s for _, s in sorted(found[name], key=lambda pair: pair[0])]
        times = [_first_last(s)[0] for s in members if s.times is not None]
        if any(b <= a for a, b in itertools.pairwise(times)):
            raise DataError(
                f"the numbers in the names of simulation {name} are not in the order of its times",
                where=str(members[0].path), fix='data.pattern="run{simulation}_t{step}.h5"',
            )  # fmt: skip
        out[name] = members
    if len(out) == len(series):
        raise DataError(
            f"each of the {len(series)} files is one sample, and no two of them are steps of one "
            "simulation", where=str(series[0].path),
            fix="data.lead=0 for a map within a sample, or "
            'data.pattern="run{simulation}_t{step}.h5"',
        )  # fmt: skip
    return out


def _name_parts(series: Series, options: Options) -> tuple[str, int]:
    """Return the simulation and the step that a file's name states."""
    stem, folder = series.path.name, str(series.path.parent.name)
    if options.pattern is not None:
        expression = re.escape(options.pattern)
        for key in ("simulation", "step"):
            group = r"\d+" if key == "step" else ".+?"
            expression = expression.replace(re.escape(f"{{{key}}}"), f"(?P<{key}>{group})")
        match = re.fullmatch(expression, stem)
        if match is None:
            raise ConfigError(
                f"{options.pattern!r} does not fit {stem!r}", where="data.pattern",
            )  # fmt: skip
        parts = match.groupdict()
        return parts.get("simulation", folder), int(parts.get("step", 0))
    numbers = re.findall(r"\d+", series.path.stem)
    if not numbers:
        raise DataError(
            "its name has no number to order it by", where=str(series.path),
            fix='data.pattern="run{simulation}_t{step}.h5"',
        )  # fmt: skip
    if len(numbers) > 1 and series.times is None:
        raise DataError(
            f"its name has the numbers {' and '.join(numbers)}: which counts simulations and which "
            "steps?", where=str(series.path),
            fix='data.pattern="run{simulation}_t{step}.h5" with {simulation} and {step} in place',
        )  # fmt: skip
    stem = re.sub(r"\d+(?=\D*$)", "", series.path.stem)
    return f"{folder}/{stem}" if folder else stem, int(numbers[-1])
