"""Trials of a search as a table: rows, pandas DataFrame, results.csv."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scitoolkit.core.files import replacing
from scitoolkit.search.history import History

if TYPE_CHECKING:
    import pandas

FILE = "results.csv"


def trial_rows(history: History) -> list[dict[str, Any]]:
    """Return one row per trial, ordered by number.

    Columns: `trial`, `status`, `origin`, parameters as `p:NAME`, metrics as `m:NAME`, wall time
    in `seconds`, `cpu` seconds, `seed`, `of` (the retrained trial), `failure`.
    """
    return [
        {
            "trial": trial.id,
            "status": "set aside" if trial.outside else trial.status,
            "origin": trial.origin,
            **{f"p:{name}": _cell(value) for name, value in trial.configuration.items()},
            **{f"m:{name}": value for name, value in trial.metrics.items()},
            "seconds": trial.wall,
            "cpu": trial.cpu,
            "seed": trial.seed,
            "of": trial.of,
            "failure": trial.failure,
        }
        for trial in sorted(history.trials.values(), key=lambda trial: trial.id)
    ]


def _cell(value: Any) -> Any:
    """Return numbers and strings unchanged, other values as JSON."""
    return value if isinstance(value, str | int | float | bool | None) else json.dumps(value)


def to_dataframe(history: History) -> pandas.DataFrame:
    """Return the trials as a DataFrame with one row per trial; see `trial_rows`.

    Example:
        >>> from scitoolkit.search import Search, real, to_dataframe
        >>> found = Search({"x": real(0, 1)}, lambda c: c["x"]).run(trials=3)
        >>> list(to_dataframe(found).columns[:5])
        ['trial', 'status', 'origin', 'p:x', 'm:objective']
    """
    import pandas

    return pandas.DataFrame(trial_rows(history))


def write_csv(history: History, folder: Path) -> Path:
    """Write results.csv atomically; return its path."""
    rows = trial_rows(history)
    names = list(dict.fromkeys(name for row in rows for name in row))
    path = folder / FILE
    with replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, names)
        writer.writeheader()
        writer.writerows(rows)
    return path
