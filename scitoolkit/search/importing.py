"""Finished trials of other programs: Optuna's studies, DeepHyper's and other tables."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from logging import Logger
from pathlib import Path
from typing import Any

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.log import get_logger
from scitoolkit.search.history import History
from scitoolkit.search.json_values import without_numpy
from scitoolkit.search.parameters import Categorical, Integer, Parameter
from scitoolkit.search.space import Codes, Space
from scitoolkit.search.trial import Objective

log: Logger = get_logger(__name__)
Row = tuple[dict[str, Any], dict[str, Any], str]
"""Parameters by name, metrics by name, message of the failure ("" for a success)."""


@dataclass(frozen=True)
class ImportedTrial:
    """Finished trial of another program, in the codes of a space; `failure` is "" or a message."""

    codes: Codes
    metrics: dict[str, float | None]
    failure: str = ""


def read_trials(source: Any, space: Space, objectives: Sequence[Objective]) -> list[ImportedTrial]:
    """Return the finished trials of a source that lie in a space; the others are counted and told.

    Args:
        source: path of a CSV file, DataFrame, study of Optuna, `History`, or pairs
            (configuration, number or metrics). A table has columns `NAME` or `p:NAME` of
            parameters and `NAME` or `m:NAME` of metrics; the `results.csv` of DeepHyper and of
            scitoolkit are such tables. Cells of inactive parameters are not read.
        space: of the search.
        objectives: of the search.

    Raises:
        ConfigError: parameters or objectives are missing, or are optimised in another direction.
        DataError: the file cannot be read, or no trial lies in the space.
    """
    rows = list(_rows(source, space, objectives))
    where = str(source) if isinstance(source, str | Path) else type(source).__name__
    trials: dict[Codes, ImportedTrial] = {}
    outside: list[str] = []
    for number, (values, metrics, failure) in enumerate(rows):
        try:
            codes = space.encode(values, drop_inactive=True)
            if not space.allows(codes):
                raise ConfigError(f"{values} does not satisfy `where`")
        except ConfigError as error:
            outside.append(f"trial {number}: {error}")
            continue
        # The first result of a configuration counts, as in a search, which evaluates none twice.
        trials.setdefault(codes, ImportedTrial(codes, _numbers(metrics), failure))
    if not trials:
        raise DataError(
            f"none of {len(rows)} finished trials lies in the space"
            + (f"; {outside[0]}" if outside else ""),
            where=where,
        )
    log.info("%s: %d finished trials", where, len(trials))
    if outside:
        log.warning("%s: %d trials are outside the space; %s", where, len(outside), outside[0])
    return list(trials.values())


def _rows(source: Any, space: Space, objectives: Sequence[Objective]) -> Iterator[Row]:
    if isinstance(source, History):
        for trial in source.trials.values():
            if trial.of is None and trial.status != "running":
                yield trial.configuration, dict(trial.metrics), trial.failure
    elif isinstance(source, str | Path):
        yield from _table(_cells(Path(source)), space, objectives)
    elif hasattr(source, "directions") and hasattr(source, "trials"):
        yield from _study(source, objectives)
    elif hasattr(source, "columns") and hasattr(source, "to_dict"):
        yield from _table(source.to_dict("records"), space, objectives)
    else:
        yield from _pairs(source, objectives)


def _pairs(source: Iterable[Any], objectives: Sequence[Objective]) -> Iterator[Row]:
    try:
        for values, result in source:
            named = isinstance(result, Mapping)
            yield dict(values), dict(result) if named else {objectives[0].name: result}, ""
    except (TypeError, ValueError):
        raise ConfigError(
            f"trials are {source!r:.60}",
            allowed="a path of a CSV file, a DataFrame, a study of Optuna, a History, or pairs "
            "(configuration, metrics)",
        ) from None


def _study(study: Any, objectives: Sequence[Objective]) -> Iterator[Row]:
    """Yield the complete and failed trials of a study; pruned ones have no final value."""
    optimised = [o for o in objectives if not o.constraint]
    theirs = [direction.name.lower()[:3] for direction in study.directions]
    if theirs != [o.direction for o in optimised]:
        raise ConfigError(
            f"the study has the directions {', '.join(theirs)}, the search has "
            f"{', '.join(f'{o.direction} ({o.name})' for o in optimised)}",
            fix="Objective(NAME, 'max') for a study that maximises",
        )
    for trial in study.trials:
        metrics = dict(trial.user_attrs)
        if trial.state.name == "FAIL":
            yield trial.params, {}, "failed in Optuna"
        elif trial.state.name == "COMPLETE":
            metrics |= zip([o.name for o in optimised], trial.values, strict=True)
            yield trial.params, metrics, ""


def _cells(path: Path) -> list[dict[str, Any]]:
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            reader = csv.DictReader(file)
            names = list(reader.fieldnames or ())
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"cannot be read as CSV ({error})", where=str(path)) from None
    twice = [name for i, name in enumerate(names) if name and name in names[:i]]
    if twice:
        raise DataError(f"column {twice[0]!r} twice", where=str(path), fix="names that differ")
    return rows


def _table(
    rows: Sequence[Mapping[str, Any]], space: Space, objectives: Sequence[Objective]
) -> Iterator[Row]:
    columns = list(dict.fromkeys(name for row in rows for name in row))
    parameters = {
        name: f"p:{name}" if f"p:{name}" in columns else name for name in space.parameters
    }
    metrics = {name[2:]: name for name in columns if str(name).startswith("m:")}
    metrics |= _objective_columns(columns, objectives)
    missing = [n for n in parameters if parameters[n] not in columns]
    missing += [o.name for o in objectives if o.name not in metrics and not o.constraint]
    if missing:
        raise ConfigError(
            f"the table has no column {', '.join(missing)}",
            where="imported trials",
            allowed=", ".join(map(str, columns)),
            fix="name columns NAME or p:NAME (parameters) and NAME or m:NAME (metrics)",
        )
    for row in rows:
        if row.get("of") not in (None, "") and not _is_nan(row["of"]):
            continue  # a finalist of scitoolkit that was trained again
        values = {n: _value(space.parameters[n], row.get(c)) for n, c in parameters.items()}
        values = {name: value for name, value in values.items() if value is not _EMPTY}
        results = {name: row.get(column) for name, column in metrics.items()}
        first = results[objectives[0].name]
        if str(first).startswith("F_") or row.get("status") == "failed":
            yield values, {}, str(row.get("failure") or first)
        elif str(first).strip() and first is not None and not _is_nan(first):
            yield values, results, ""


def _objective_columns(columns: Sequence[str], objectives: Sequence[Objective]) -> dict[str, str]:
    """Return the columns of objectives by name; DeepHyper numbers them and maximises all."""
    out = {o.name: o.name for o in objectives if o.name in columns and f"m:{o.name}" not in columns}
    optimised = [o for o in objectives if not o.constraint]
    numbered = [f"objective_{i}" for i in range(len(optimised))]
    theirs = ["objective"] if len(optimised) == 1 else numbered
    if "job_id" not in columns or not set(theirs) <= set(columns):
        return out
    for objective in optimised:
        if objective.direction != "max":
            raise ConfigError(
                "DeepHyper maximises its objectives",
                where=f"objective {objective.name}",
                fix=f"Objective({objective.name!r}, 'max')",
            )
    return out | dict(zip([o.name for o in optimised], theirs, strict=True))


_EMPTY = object()


def _value(parameter: Parameter, cell: Any) -> Any:
    """Return the value of a cell of a table, `_EMPTY` for none."""
    cell = without_numpy(cell)
    if isinstance(parameter, Categorical):
        for value in parameter.values:
            if isinstance(cell, str) and cell in (str(value), json.dumps(value)):
                return value
        if cell in ("", None) and None in parameter.values:
            return None
    if cell in ("", None) or _is_nan(cell):
        return _EMPTY
    if not isinstance(cell, str):
        return cell
    try:
        # Cells of CSV files are text: JSON first, which reads true, null and lists, then what only
        # `float` reads, such as inf.
        number = json.loads(cell)
    except ValueError:
        try:
            number = float(cell)
        except ValueError:
            return cell
    if isinstance(parameter, Integer) and isinstance(number, float) and number.is_integer():
        return int(number)
    return number


def _is_nan(cell: Any) -> bool:
    return isinstance(cell, float) and math.isnan(cell)


def _numbers(metrics: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the metrics that are numbers."""
    out: dict[str, float | None] = {}
    for name, value in metrics.items():
        try:
            out[str(name)] = float(value)
        except (TypeError, ValueError):
            continue
    return out
