"""Progress of a running search: a live table, a line in a notebook, else a log line every 30 s."""

from __future__ import annotations

import sys
import time
from logging import Logger
from typing import TYPE_CHECKING, Any

from scitoolkit.core.log import get_logger
from scitoolkit.core.notebook import in_notebook

if TYPE_CHECKING:
    from scitoolkit.search.manager import Search

log: Logger = get_logger(__name__)
_REFRESH, _LINE_EVERY = 0.5, 30.0


class LiveTable:
    """Progress table: trials, rate, busy share and best trial, redrawn in place on a terminal."""

    def __init__(self) -> None:
        self._terminal = sys.stderr.isatty()
        self._notebook = in_notebook()
        self._width = 0
        self._live: Any = None
        self._next = 0.0
        self._begin: tuple[float, int] | None = None

    def __enter__(self) -> LiveTable:
        """Start the live display on a terminal."""
        if self._terminal:
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), auto_refresh=False, transient=True)
            self._live.start()
        at_once = self._terminal or self._notebook
        self._next = time.monotonic() + (0.0 if at_once else _LINE_EVERY)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the live display and restore the terminal."""
        if self._live is not None:
            self._live.stop()
        elif self._notebook and self._width:
            sys.stderr.write("\n")

    def update(self, search: Search) -> None:
        """Redraw or log the progress, unless the last update is too recent."""
        now = time.monotonic()
        if self._begin is None:
            self._begin = (now, search.history.num_done)
        if now < self._next:
            return
        rows = facts(search, now - self._begin[0], self._begin[1])
        if self._notebook:
            self._next = now + _REFRESH
            text = ", ".join(f"{name} {value}" for name, value in rows.items())
            self._width = max(self._width, len(text))
            sys.stderr.write(f"\r{text:<{self._width}}")
            sys.stderr.flush()
            return
        if self._live is None:
            self._next = now + _LINE_EVERY
            log.info("%s", ", ".join(f"{name} {value}" for name, value in rows.items()))
            return
        self._next = now + _REFRESH
        self._live.update(_table(rows), refresh=True)


def facts(search: Search, seconds: float, before: int) -> dict[str, str]:
    """Return the rows of the progress table, by name.

    Args:
        search: a running search.
        seconds: duration of this session.
        before: number of trials finished before this session.
    """
    history = search.history
    best = history.best_known
    rate = 60 * (history.num_done - before) / seconds if seconds > 0 else 0.0
    rows = {
        "trials": f"{history.num_done} done, {len(history.running)} running, "
        f"{history.num_failed} failed"
        + (f", {history.num_pruned} pruned" if history.num_pruned else ""),
        "per minute": f"{rate:.1f}",
        "busy share": f"{history.busy_share():.3f}",
    }
    if best is not None:
        names = [o.name for o in search.objectives]
        rows["best"] = ", ".join(f"{n} {best.metrics[n]:.5g}" for n in names)
        rows["trial"] = f"{best.id}: {best.configuration}"
    return rows


def _table(rows: dict[str, str]) -> Any:
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in rows.items():
        table.add_row(name, value, style=None)
    return table
