"""The one comparison of the data of a model's training with other data.

Whoever hands other data to a model calls `compare`, which alone decides whether a difference is
converted, refused or told; `problems` names what is wrong with data by themselves.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from scitoolkit.core.data_facts import MEANINGS, STEP_TOLERANCE, DataFacts, Dim, Var
from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.core.unit_conversion import conversion
from scitoolkit.core.units import same_unit

log = get_logger(__name__)
Level = Literal["error", "convert", "warning", "note"]
_ORDER: dict[Level, int] = {"error": 0, "convert": 1, "warning": 2, "note": 3}
_SPATIAL = ("latitude", "longitude", "vertical", "space")
_STANDARD = {"", "standard", "gregorian", "proleptic_gregorian"}
CELL_TOLERANCE = 1e-2
"""Distance of coordinates, in cells, that counts as the same grid."""
MONTH_TOLERANCE = 3
"""Difference in days of dates of months that say the same part of the month."""
ENTRY_TOLERANCE = 1e-6
"""Relative distance of the only entries of two dims that counts as none."""
SPACINGS = 50
"""A typical change below so many float32 spacings of the values is lost in the cast."""


@dataclass(frozen=True)
class Conversion:
    """An exact change of data into those of the training.

    Attributes:
        target: variable (affine, transpose) or dim (flip, roll).
        action: what is done.
        factor: of affine, value * factor + offset.
        offset: of affine.
        shift: of roll, entries that move from the front to the back.
        dims: of transpose, the order of the training.
    """

    target: str
    action: Literal["affine", "flip", "roll", "transpose"]
    factor: float = 1.0
    offset: float = 0.0
    shift: int = 0
    dims: tuple[str, ...] = ()


@dataclass(frozen=True)
class Difference:
    """One difference between data and those of the training.

    Attributes:
        level: an `error` ends the command, `convert` is done, the others are told.
        key: what differs.
        trained: what the training data were.
        actual: what the data are.
        fix: what to do about an error.
        conversion: what makes them equal.
    """

    level: Level
    key: str
    trained: str
    actual: str
    fix: str = ""
    conversion: Conversion | None = None

    def __str__(self) -> str:
        """Return the line shown to the user."""
        verb = "; converted to" if self.level == "convert" else "; trained on"
        return f"{self.key}: {self.actual}{verb} {self.trained}"


@dataclass(frozen=True)
class Accepts:
    """Differences that a model allows; the default is the strictest.

    Attributes:
        grid: `same` cells, the same `spacing`, or `any` grid.
        step: the `same` step of time, or `any`.
        uneven: whether steps may differ within a file (the step is an input of the model).
        dates: whether the model needs dates, such as one with a season.
        species: `subset` of the trained ones, or any `superset`.
        optional: names of variables, labels and roles that may be missing; `any` variable if
            opening refuses a missing one itself, where only what was read is compared.
        convert: whether exact conversions are done; an error otherwise.
        others: whether data may hold variables, other than labels, that the training did not have.
    """

    grid: Literal["same", "spacing", "any"] = "same"
    step: Literal["same", "any"] = "same"
    uneven: bool = False
    dates: bool = False
    species: Literal["subset", "superset"] = "subset"
    optional: tuple[str, ...] | Literal["any"] = ()
    convert: bool = True
    others: bool = True


def problems(facts: DataFacts, accepts: Accepts = Accepts()) -> list[Difference]:
    """Return what is wrong with data by themselves, before any comparison."""
    out = [
        Difference(
            "error",
            f"variable {v.name}",
            "real numbers",
            f"{v.kind} numbers" if v.kind == "complex" else "no numbers",
            fix=f"write {v.name}.real and {v.name}.imag as two variables"
            if v.kind == "complex"
            else f"leave {v.name} out",
        )
        for v in facts.variables
        if v.kind in ("complex", "other")
    ]
    times = [d for d in facts.dims if d.role == "time"]
    if len(times) > 1:
        names = " and ".join(d.name for d in times)
        out.append(
            Difference(
                "error", "time", "one dim of time", f"the dims {names}", f"select one of {names}"
            )
        )
    for dim in facts.dims:
        incomplete = _incomplete(dim)
        out += incomplete
        if dim.role == "time" and not incomplete:
            out += _problems_of_time(dim, accepts)
    out += [
        Difference(
            "error",
            f"dim {d.name}",
            "each point of a period once",
            f"both ends of the period ({d.first:g} and {d.last:g})",
            f"leave the last entry out: ds.isel({d.name}=slice(-1))",
        )
        for d in facts.dims
        if d.repeats
    ]
    return out + [d for v in facts.variables for d in _lost_in_cast(v)]


def _incomplete(dim: Dim) -> list[Difference]:
    """Return an error if entries of a coordinate are NaN, NaT or infinite."""
    edges = [dim.first, dim.last]
    if dim.step is not None:
        edges += [dim.step.low, dim.step.high]
    if np.isfinite(edges).all():
        return []
    key = f"{'time' if dim.role == 'time' else 'dim'} {dim.name}"
    text, fix = "a missing or infinite entry", f"ds.dropna({dim.name!r})"
    return [Difference("error", key, "a finite coordinate", text, fix)]


def _lost_in_cast(variable: Var) -> list[Difference]:
    if variable.change is None or variable.magnitude is None or variable.constant:
        return []
    spacing = float(np.spacing(np.float32(variable.magnitude)))
    if variable.change >= SPACINGS * spacing:
        return []
    return [
        Difference(
            "error",
            f"variable {variable.name}",
            f"changes of at least {SPACINGS} float32 spacings",
            f"a typical change of {variable.change:.3g} at values near {variable.magnitude:.6g}, "
            f"whose float32 spacing is {spacing:.3g}",
            f"subtract the mean of {variable.name} in the precision of the file",
        )
    ]


def _problems_of_time(dim: Dim, accepts: Accepts) -> list[Difference]:
    key = f"time {dim.name}"
    if dim.kind == "other" and not accepts.uneven:
        fix = f"write {dim.name} as dates or numbers"
        return [Difference("error", key, "dates or numbers", "text or other values", fix)]
    packed = packed_dates(dim)
    if packed:
        text = f"numbers {dim.first:.10g} to {dim.last:.10g}, which look like {packed}"
        fix = f"write them as dates: {_REPAIRS[packed].format(name=dim.name)}"
        return [Difference("error", key, "dates", text, fix)]
    if dim.step is None:
        return []
    if not dim.step.low > 0:
        return [
            Difference(
                "error",
                key,
                "increasing times",
                "times that repeat or decrease",
                f"ds.sortby({dim.name!r}).drop_duplicates({dim.name!r})",
            )
        ]
    if not dim.step.is_even and not accepts.uneven:
        low, high = (replace(dim.step, number=n) for n in (dim.step.low, dim.step.high))
        text = f"steps of {low} to {high}"
        return [
            Difference("error", key, "even steps", text, f"ds.interp or select even {dim.name}")
        ]
    return []


_REPAIRS = {
    "YYYYMM": "ds['{name}'] = pd.to_datetime(ds['{name}'].values.astype(int).astype(str), "
    "format='%Y%m')",
    "YYYYMMDD": "ds['{name}'] = pd.to_datetime(ds['{name}'].values.astype(int).astype(str), "
    "format='%Y%m%d')",
    "YYYYDDD": "ds['{name}'] = pd.to_datetime(ds['{name}'].values.astype(int).astype(str), "
    "format='%Y%j')",
    "decimal years": "xr.decode_cf of 'days since', computed from the fraction of the year",
}


def packed_dates(dim: Dim) -> str:
    """Return the form of dates that are packed into plain numbers, "" if they are not.

    Returns:
        "YYYYMM", "YYYYMMDD", "YYYYDDD" (day of the year), "decimal years" or "".
    """
    if dim.kind != "numbers" or dim.size < 2 or "since" in dim.units or dim.step is None:
        return ""
    if not np.isfinite([dim.first, dim.last]).all():
        return ""
    low, high = sorted((dim.first, dim.last))
    whole = low == int(low) and high == int(high)
    for name, digits in (("YYYYMM", 100), ("YYYYMMDD", 10000)):
        if not whole or not all(1000 <= edge // digits <= 3000 for edge in (low, high)):
            continue
        months = [int(edge % digits) // (digits // 100) for edge in (low, high)]
        if all(1 <= month <= 12 for month in months):
            return name
    if whole and all(
        1900 <= edge // 1000 <= 2199 and 1 <= edge % 1000 <= 366 for edge in (low, high)
    ):
        return "YYYYDDD"
    # The steps of decimal years are below a year; a count of steps or seconds has larger ones.
    year_unit = dim.units.lower() in ("", "1", "year", "years", "yr", "decimal_year")
    if 1000 <= low < high <= 3000 and 0 < dim.step.number < 1 and year_unit:
        return "decimal years"
    return ""


def compare(trained: DataFacts, found: DataFacts, accepts: Accepts = Accepts()) -> list[Difference]:
    """Return the differences of data from those of the training, errors first.

    Args:
        trained: facts of the training data.
        found: facts of the other data.
        accepts: what the model allows.

    Example:
        >>> trained = DataFacts((Var("t", "K"),))
        >>> [str(d) for d in compare(trained, DataFacts((Var("t", "degC"),)))]
        ['variable t: unit degC; converted to unit K']
    """
    out: list[Difference] = []
    if accepts.optional == "any":
        accepts, trained = replace(accepts, optional=()), _read_part(trained, found)
    partners = _partners(trained, found)
    for variable in trained.variables:
        other = found.var(variable.name)
        if other is not None:
            out += _variable(variable, other, partners, accepts)
        elif variable.name not in accepts.optional and variable.role not in accepts.optional:
            out.append(_missing("variable", variable.name, [v.name for v in found.variables]))
    for dim in trained.dims:
        if dim.role != "simulation" and dim.role not in accepts.optional:
            out += _dim(dim, partners.get(dim.name), accepts)
    out += _mask(trained, found) if not any(d.key.startswith("dim ") for d in out) else []
    out += _parameters(trained, found, accepts)
    if not accepts.others:
        new = (v for v in found.variables if trained.var(v.name) is None and v.role != "label")
        out += [_untrained(v) for v in new]
    out += _atoms(trained, found, accepts)
    return sorted(out, key=lambda d: _ORDER[d.level])


def _read_part(trained: DataFacts, found: DataFacts) -> DataFacts:
    """Return the facts of those variables of the training that data hold, and of their dims."""
    variables = tuple(v for v in trained.variables if found.var(v.name) is not None)
    dims = {d for v in variables for d in v.dims}
    return replace(
        trained, variables=variables, dims=tuple(d for d in trained.dims if d.name in dims)
    )


def refuse(differences: Sequence[Difference], where: str) -> None:
    """Raise the errors among differences together, and log the others once.

    Raises:
        DataError: with the key, both sides and the remedy of each error.
    """
    errors = [d for d in differences if d.level == "error"]
    if errors:
        fixes = dict.fromkeys(d.fix for d in errors if d.fix)
        raise DataError(
            "; ".join(f"{d.key}: {d.actual}" for d in errors),
            where=where,
            allowed="; ".join(dict.fromkeys(d.trained for d in errors)),
            fix="; ".join(fixes) or "data like those of the training",
        )
    for difference in differences:
        level = log.info if difference.level in ("note", "convert") else log.warning
        level("%s: %s", where, difference)


def _missing(kind: str, name: str, present: Sequence[str]) -> Difference:
    near = difflib.get_close_matches(name, present, 1)
    text = f"missing; there are {', '.join(present) or 'none'}"
    fix = f"rename {near[0]!r} to {name!r}" if near else f"add {name!r}"
    return Difference("error", f"{kind} {name}", f"{kind} {name}", text, fix)


def _untrained(variable: Var) -> Difference:
    """Return an error for an input that the training did not have."""
    fix = f"train with {variable.name}, or leave it out"
    key, trained = f"variable {variable.name}", f"no variable {variable.name}, as in training"
    return Difference("error", key, trained, f"{variable.role} input", fix)


def _partners(trained: DataFacts, found: DataFacts) -> dict[str, Dim]:
    """Return the dim of the data for each dim of the training: by name, then by role."""
    names = {d.name: d for d in found.dims}
    out = {d.name: names[d.name] for d in trained.dims if d.name in names}
    for dim in trained.dims:
        if dim.name in out or dim.role == "space":  # x cannot stand for y
            continue
        free = [d for d in found.dims if d.role == dim.role and d not in out.values()]
        if len(free) == 1:
            out[dim.name] = free[0]
    return out


def _variable(
    trained: Var, found: Var, partners: Mapping[str, Dim], accepts: Accepts
) -> list[Difference]:
    key, out = f"variable {trained.name}", []
    if found.kind != trained.kind and {"complex", "other"} & {found.kind, trained.kind}:
        return [Difference("error", key, f"{trained.kind} numbers", f"{found.kind} numbers")]
    if trained.shape != found.shape:
        out.append(
            Difference("error", key, f"components {trained.shape}", f"components {found.shape}")
        )
    roles = {dim.name: dim.role for dim in partners.values()}
    order = tuple(partners[d].name for d in trained.dims if d in partners)
    present = tuple(d for d in found.dims if d in order)
    if missing := [d for d in order if d not in present and roles[d] != "simulation"]:
        # The file has the dim, along which this variable alone is constant.
        texts = f"dims ({', '.join(trained.dims)})", f"dims ({', '.join(found.dims)})"
        fix = f"write {trained.name} along {', '.join(missing)}"
        out.append(Difference("error", key, *texts, fix))
    if order != present and sorted(order) == sorted(present):
        level: Level = "convert" if accepts.convert else "error"
        step = Conversion(trained.name, "transpose", dims=order)
        names = ", ".join(trained.dims), ", ".join(found.dims)
        out.append(Difference(level, key, f"dims ({names[0]})", f"dims ({names[1]})", "", step))
    for name in MEANINGS:
        stated = getattr(trained, name), getattr(found, name)
        if all(stated) and stated[0].lower() != stated[1].lower():
            # With the other direction the sign of every value is wrong.
            worst: Level = "error" if name == "positive" else "warning"
            out.append(Difference(worst, key, f"{name} {stated[0]}", f"{name} {stated[1]}"))
    return out + _unit(key, trained, found, accepts)


def _unit(key: str, trained: Var, found: Var, accepts: Accepts) -> list[Difference]:
    if same_unit(trained.units, found.units):
        return []
    both = f"unit {trained.units or 'unknown'}", f"unit {found.units or 'unknown'}"
    if not (trained.units and found.units):
        # A file without the attribute is usual; whoever wrote one has to be believed.
        return [Difference("warning", key, *both)]
    line = conversion(found.units, trained.units)
    if line is None or not accepts.convert:
        fix = f"convert {trained.name} to {trained.units}"
        return [Difference("error", key, *both, fix)]
    return [Difference("convert", key, *both, "", Conversion(trained.name, "affine", *line))]


def _dim(trained: Dim, found: Dim | None, accepts: Accepts) -> list[Difference]:
    if found is None:
        if trained.role == "time":
            return []  # one state without a time; the domain states whether it needs more
        text = f"a dim of {trained.role}" if trained.role != "space" else f"dim {trained.name}"
        return [Difference("error", f"dim {trained.name}", text, "no such dim")]
    if trained.role == "time":
        return _time(trained, found, accepts)
    if trained.role in _SPATIAL:
        return _space(trained, found, accepts)
    if trained.role == "component" and trained.size != found.size:
        sizes = f"{trained.size} components", f"{found.size} components"
        return [Difference("error", f"dim {found.name}", *sizes)]
    return []


def _time(trained: Dim, found: Dim, accepts: Accepts) -> list[Difference]:
    key = f"time {found.name}"
    kinds = {"dates": "dates", "numbers": "plain numbers", "none": "no coordinate"}
    if trained.kind != found.kind:
        # Without a coordinate the step is unknown: it can be told, but not compared.
        kinds_of_both = {trained.kind, found.kind}
        unknown = "none" in kinds_of_both and not accepts.dates
        unknown = unknown or ("other" in kinds_of_both and accepts.step == "any")
        texts = [kinds.get(kind, "text or other values") for kind in (trained.kind, found.kind)]
        if trained.step is not None and found.kind == "none":
            texts[0] += f" with a step of {trained.step}"
        fix = f"write {found.name} as {kinds.get(trained.kind, 'in the training data')}"
        level: Level = "warning" if unknown else "error"
        return [Difference(level, key, texts[0], texts[1], fix)]
    out = []
    calendars = trained.calendar, found.calendar
    if calendars[0] != calendars[1] and not set(calendars) <= _STANDARD:
        level = "error" if "360_day" in calendars else "warning"
        names = [f"calendar {c or 'standard'}" for c in calendars]
        out.append(Difference(level, key, names[0], names[1], "the calendar of the training"))
    if trained.step and found.step and accepts.step == "same":
        if not trained.step.same(found.step):
            steps = f"a step of {trained.step}", f"a step of {found.step}"
            fix = f"resample to a step of {trained.step}"
            out.append(Difference("error", key, *steps, fix))
        elif trained.step.unit == "month" and calendars[0] == calendars[1]:
            days = [_day_of_month(dim) for dim in (trained, found)]
            # The middle of a month is day 14 to 16.
            if abs(days[0] - days[1]) > MONTH_TOLERANCE:
                was, is_now = (f"months dated at day {day}" for day in days)
                fix = "the day of the training's months"
                out.append(Difference("warning", key, was, is_now, fix))
    return out


def _day_of_month(times: Dim) -> int:
    """Return the day of the month of the first date."""
    import cftime

    calendar = times.calendar or "standard"
    return cftime.num2date(times.first, "seconds since 1970-01-01", calendar).day


def _space(trained: Dim, found: Dim, accepts: Accepts) -> list[Difference]:
    key, out = f"dim {found.name}", []
    if trained.kind != found.kind:
        if trained.kind == "none" or found.kind == "none":
            if trained.size == found.size or accepts.grid == "any":
                named = [
                    f"{'no ' if d.kind == 'none' else ''}coordinates" for d in (trained, found)
                ]
                return [Difference("warning", key, named[0], named[1])]
        return [Difference("error", key, _cells(trained), _cells(found))]
    scale, offset = 1.0, 0.0
    if not same_unit(trained.units, found.units) and trained.units and found.units:
        line = conversion(found.units, trained.units)
        if line is None:
            return [
                Difference(
                    "error", key, f"unit {trained.units}", f"unit {found.units}", "the unit of both"
                )
            ]
        scale, offset = line
    if trained.positive != found.positive:
        texts = [f"positive {d.positive or 'unknown'}" for d in (trained, found)]
        stated = bool(trained.positive and found.positive)
        level: Level = "error" if stated else "note"
        fix = f"ds.assign_coords({found.name}=-ds[{found.name!r}]), with attrs positive"
        out.append(Difference(level, key, texts[0], texts[1], fix))
        if stated:
            return out
    if trained.size == found.size == 1 and trained.kind == "numbers":
        return out + _one_entry(key, trained, found, (scale, offset), accepts)
    if trained.direction * found.direction < 0:
        names = ["increasing" if d.direction > 0 else "decreasing" for d in (trained, found)]
        level = "convert" if accepts.convert else "error"
        flip = Conversion(found.name, "flip")
        out.append(Difference(level, key, names[0], names[1], f"ds.sortby({found.name!r})", flip))
    if (trained.period is None) != (found.period is None):
        texts = [
            "no period" if d.period is None else f"period {d.period:g}" for d in (trained, found)
        ]
        out.append(Difference("error", key, texts[0], texts[1], "the domain of the training"))
        return out
    return out + _grid(key, trained, found, (scale, offset), accepts)


def _one_entry(
    key: str, trained: Dim, found: Dim, line: tuple[float, float], accepts: Accepts
) -> list[Difference]:
    """Compare the only positions along a dim: another level is another field on any grid."""
    if accepts.grid != "same" and trained.role != "vertical":
        return []
    distance = abs(found.first * line[0] + line[1] - trained.first)
    if distance <= ENTRY_TOLERANCE * abs(trained.first):
        return []
    before, here = (f"{d.first:g} {d.units}".strip() for d in (trained, found))
    return [Difference("error", key, before, here, f"the entry at {before}")]


def _grid(
    key: str, trained: Dim, found: Dim, line: tuple[float, float], accepts: Accepts
) -> list[Difference]:
    if accepts.grid == "any":
        return []
    sides = _cells(trained), _cells(found)
    if trained.step and found.step:
        ratio = abs(found.step.number * line[0]) / trained.step.number if trained.step.number else 1
        if not abs(ratio - 1) <= STEP_TOLERANCE:
            return [Difference("error", key, *sides, "interpolate to the cells of the training")]
    if accepts.grid == "spacing":
        return []
    if trained.size != found.size or trained.digest != found.digest:
        return [Difference("error", key, *sides, "interpolate to the cells of the training")]
    if trained.kind != "numbers" or trained.step is None or not trained.step.number:
        return []
    low = min(trained.first, trained.last)
    other = min(e * line[0] + line[1] for e in (found.first, found.last))
    shift = (other - low) / trained.step.number
    if abs(shift) <= CELL_TOLERANCE:
        return []
    if trained.period is not None:
        cells = round(shift)
        whole = round(trained.period / trained.step.number)
        if abs(shift - cells) <= CELL_TOLERANCE * max(1, abs(cells)) and whole == trained.size:
            if cells % trained.size == 0:
                return []
            level: Level = "convert" if accepts.convert else "error"
            roll = Conversion(found.name, "roll", shift=-cells % trained.size)
            return [Difference(level, key, *sides, "", roll)]
    return [Difference("error", key, *sides, "the region of the training")]


def _cells(dim: Dim) -> str:
    if dim.kind != "numbers":
        return f"{dim.size} cells"
    return (
        f"{dim.size} cells from {dim.first:g} to {dim.last:g}{' ' + dim.units if dim.units else ''}"
    )


def _mask(trained: DataFacts, found: DataFacts) -> list[Difference]:
    if trained.mask == found.mask or not trained.mask or not found.mask:
        return []
    return [
        Difference(
            "error", "mask", "another set of cells without values", "other cells", "the same mask"
        )
    ]


def _parameters(trained: DataFacts, found: DataFacts, accepts: Accepts) -> list[Difference]:
    out = []
    for name, (low, high, unit) in trained.parameters.items():
        if name not in found.parameters:
            if name not in accepts.optional:
                out.append(_missing("parameter", name, list(found.parameters)))
            continue
        first, last, other_unit = found.parameters[name]
        if unit and other_unit and not same_unit(unit, other_unit):
            both = f"unit {unit}", f"unit {other_unit}"
            out.append(Difference("error", f"parameter {name}", *both, f"convert it to {unit}"))
        elif not (first >= low and last <= high):
            out.append(
                Difference(
                    "warning",
                    f"parameter {name}",
                    f"{low:g} to {high:g}",
                    f"{first:g} to {last:g}, so that the model extrapolates",
                )
            )
    return out


def _atoms(trained: DataFacts, found: DataFacts, accepts: Accepts) -> list[Difference]:
    out = []
    extra = sorted(set(found.species) - set(trained.species))
    if trained.species and extra and accepts.species == "subset":
        names = ", ".join(trained.species)
        out.append(
            Difference(
                "error", "species", names, ", ".join(extra), f"atoms of {names}, or fine-tune"
            )
        )
    for label, unit in trained.labels.items():
        if label not in found.labels:
            if label not in accepts.optional:
                out.append(_missing("label", label, list(found.labels)))
        elif not same_unit(unit, found.labels[label]):
            both = f"unit {unit}", f"unit {found.labels[label]}"
            out.append(Difference("error", f"label {label}", *both, f"convert it to {unit}"))
    return out
