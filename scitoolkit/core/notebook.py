"""Display in notebooks: small HTML tables, which Jupyter shows for the value of a cell.

Everything that comes from files is escaped. Nothing here imports Jupyter: a notebook is recognised
by the shell that runs it.
"""

from __future__ import annotations

import html
import math
import numbers
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

MOST_ROWS = 20
"""Rows of a table that are shown; the number of others is told."""


def in_notebook() -> bool:
    """Return whether a Jupyter kernel runs this process; its streams update a line in place."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return type(shell).__name__ == "ZMQInteractiveShell"


def html_page(title: str, sentences: Iterable[str] = (), *parts: str) -> str:
    """Return a heading, sentences and parts made by `html_table` as one block of HTML.

    Example:
        >>> html_page("a < b", ["One sentence."])
        '<div><strong>a &lt; b</strong><br>One sentence.</div>'
    """
    lines = [f"<strong>{html.escape(title)}</strong>", *map(html.escape, sentences)]
    return f"<div>{'<br>'.join(lines)}{''.join(parts)}</div>"


def html_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], title: str = "") -> str:
    """Return a table of at most `MOST_ROWS` rows as HTML.

    Args:
        columns: heads; empty texts leave the row of heads out.
        rows: cells; numbers are written with four digits, None and NaN as a dash.
        title: above the table.

    Example:
        >>> html_table(["a"], [[0.123456], [None]])
        '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>0.1235</td></tr><tr><td>–</td></tr></tbody></table>'
    """
    caption = f"<caption>{html.escape(title)}</caption>" if title else ""
    heads = "".join(f"<th>{html.escape(name)}</th>" for name in columns)
    head = f"<thead><tr>{heads}</tr></thead>" if any(columns) else ""
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(_text(cell))}</td>' for cell in row)}</tr>"
        for row in rows[:MOST_ROWS]
    )
    left = len(rows) - MOST_ROWS
    more = f'<tr><td colspan="{len(columns)}">and {left} more</td></tr>' if left > 0 else ""
    return f"<table>{caption}{head}<tbody>{body}{more}</tbody></table>"


def html_facts(facts: Mapping[str, Any]) -> str:
    """Return a table of two columns, name and value, without heads."""
    return html_table(["", ""], list(facts.items()))


def _text(cell: Any) -> str:
    real = isinstance(cell, numbers.Real) and not isinstance(cell, numbers.Integral)
    if cell is None or (real and math.isnan(cell)):
        return "–"
    return f"{cell:.4g}" if real else str(cell)
