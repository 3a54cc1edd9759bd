"""Tables as text, with a common number of digits per column and the best cells marked."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import Any

from scitoolkit.core.results import Table, display_unit

Cell = float | int | str | None
MISSING = "–"
_UNIT = re.compile(r"^(?P<name>.*\S)\s*[\[(](?P<unit>[^\[\]()]+)[\])]\s*$", re.DOTALL)


def split_unit(column: str) -> tuple[str, str]:
    """Split a column's name into name and unit.

    Example:
        >>> split_unit("RMSE (°C)")
        ('RMSE', '°C')
        >>> split_unit("model")
        ('model', '')
    """
    match = _UNIT.match(column)
    return (match["name"], display_unit(match["unit"])) if match else (column, "")


def format_column(cells: Sequence[Cell]) -> list[str]:
    """Format the cells of a column alike, with four significant digits of its largest number.

    The smallest number keeps at least two digits; a column with too large a range is not aligned.

    Example:
        >>> format_column([0.48123, 0.4, None, "n/a"])
        ['0.4812', '0.4000', '–', 'n/a']
        >>> format_column([12, 1500])
        ['12', '1500']
    """
    sizes = [abs(c) for c in cells if isinstance(c, float) and math.isfinite(c) and c != 0]
    largest, smallest = max(sizes, default=1.0), min(sizes, default=1.0)
    if largest >= 1e6 or smallest < 1e-4 * largest or largest < 1e-3:
        return [_format(cell, ".4g") for cell in cells]
    decimals = max(0, 3 - math.floor(math.log10(largest)), 1 - math.floor(math.log10(smallest)))
    return [_format(cell, f".{decimals}f") for cell in cells]


def best_rows(table: Table) -> list[set[int]]:
    """Return for every column the rows with its best number.

    The first column names the rows and has no best number; neither does a column with fewer than
    two different numbers.

    Example:
        >>> best_rows(Table(title="", columns=["m", "e"], rows=[["a", 2.0], ["b", 1.0]],
        ...                 best="min"))
        [set(), {1}]
    """
    columns = range(len(table.columns))
    if table.best is None:
        return [set() for _ in columns]
    rows_of_columns: list[set[int]] = []
    for j in columns:
        numbers: dict[int, Any] = {
            i: r[j] for i, r in enumerate(table.rows) if j < len(r) and _is_number(r[j])
        }
        if j == 0 or len(set(numbers.values())) < 2:
            rows_of_columns.append(set())
            continue
        smallest = (table.best == "min") != (table.columns[j] in table.opposite)
        best = (min if smallest else max)(numbers.values())
        rows_of_columns.append({i for i, value in numbers.items() if value == best})
    return rows_of_columns


def formatted_rows(table: Table) -> list[list[str]]:
    """Return the cells of a table as text; short rows are padded with dashes."""
    width = len(table.columns)
    padded = [[*row, *[None] * (width - len(row))][:width] for row in table.rows]
    columns = [format_column([row[j] for row in padded]) for j in range(width)]
    return [[column[i] for column in columns] for i in range(len(padded))]


def is_numeric_column(table: Table, column: int) -> bool:
    """Return whether a column contains numbers or no values at all and is right-aligned."""
    cells = [row[column] for row in table.rows if column < len(row)]
    return any(map(_is_number, cells)) or (column > 0 and not any(cells))


def text_table(table: Table) -> str:
    """Format a table as aligned plain text, with units below the names and `*` at the best cells.

    Example:
        >>> print(text_table(Table(title="Test error", columns=["model", "RMSE (K)"],
        ...                        rows=[["persistence", 0.91], ["POD", 0.52]], best="min")))
        Test error
        model          RMSE
                          K
        -----------  -------
        persistence  0.9100
        POD          0.5200*
        * best in its column
    """
    best = best_rows(table)
    heads = [split_unit(_plain(name)) for name in table.columns]
    right = [is_numeric_column(table, j) for j in range(len(heads))]
    # A column with a mark gets one more character, so that its numbers remain aligned.
    tail = [bool(rows) for rows in best]
    body = [
        [_plain(cell) + ("*" if i in best[j] else " " * tail[j]) for j, cell in enumerate(row)]
        for i, row in enumerate(formatted_rows(table))
    ]
    lines = [[head + " " * tail[j] for j, (head, _) in enumerate(heads)]]
    if any(unit for _, unit in heads):
        lines.append([unit + " " * tail[j] for j, (_, unit) in enumerate(heads)])
    widths = [max(len(row[j]) for row in [*lines, *body]) for j in range(len(heads))]
    out = [_plain(table.title)] if table.title else []
    rule = ["-" * width for width in widths]
    for row in [*lines, rule, *body]:
        cells = (
            c.rjust(w) if r else c.ljust(w) for c, w, r in zip(row, widths, right, strict=True)
        )
        out.append("  ".join(cells).rstrip())
    if any(best):
        out.append("* best in its column")
    if table.note:
        out.append(_plain(table.note))
    return "\n".join(out)


def _is_number(cell: Cell) -> bool:
    return isinstance(cell, int | float) and not isinstance(cell, bool) and math.isfinite(cell)


def _format(cell: Cell, spec: str) -> str:
    if cell is None or (isinstance(cell, float) and not math.isfinite(cell)):
        return MISSING
    return format(cell, spec) if isinstance(cell, float) else str(cell)


def _plain(text: str) -> str:
    """Replace control characters, so that names from files cannot control the terminal."""
    return "".join(c if c.isprintable() else " " for c in text)
