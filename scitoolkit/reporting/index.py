"""Index page with links to the reports of several runs, their verdicts and first figures."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from scitoolkit.core.files import write_atomic
from scitoolkit.core.results import FILE_NAME, Results, Table, Verdict
from scitoolkit.reporting.page import shown_table, template
from scitoolkit.reporting.style import display_text

VERDICT_COLUMNS = ("figure of merit", "scitoolkit", "baseline", "best baseline", "difference")


def write_index(
    target: Path,
    runs: Sequence[Path],
    left_out: Mapping[str, str],
    *,
    title: str = "Reports",
    tables: Sequence[Table] = (),
    names: Sequence[str] = (),
) -> Path:
    """Write an index page with relative links, so that the folder can be moved or served.

    A table of all verdicts comes first, then the reports in the given order.

    Args:
        target: the page to write; the runs may be below its folder or elsewhere on this machine.
        runs: run directories with results.json and report/index.html.
        left_out: for each workflow that was not run, the reason.
        title: heading of the page.
        tables: shown between the verdicts and the reports.
        names: of the runs, such as the settings that differ; () for the titles of their reports.

    Returns:
        The path of the page.

    Raises:
        DataError: a run has no results.
    """
    entries, verdicts, dates = [], [], []
    for place, run in enumerate(runs):
        results = Results.read(run)
        name = names[place] if names else display_text(results.title)
        dates.append(time.strftime("%Y-%m-%d", time.gmtime((run / FILE_NAME).stat().st_mtime)))
        if results.verdict:
            verdicts.append([name, *verdict_cells(results.verdict)])
        images = sorted((run / "report").glob("01-*.png"))
        entries.append(
            {
                "title": name,
                "verdict": results.verdict.sentence if results.verdict else "",
                "report": _link(run / "report" / "index.html", target),
                "image": _link(images[0], target) if images else "",
            }
        )
    columns = ["report", *VERDICT_COLUMNS]
    first = [Table(title="Verdicts", columns=columns, rows=verdicts)] if verdicts else []
    page = template("index.html").render(
        title=title,
        date=" to ".join(dict.fromkeys((min(dates), max(dates)))) if dates else "",
        tables=[shown_table(table) for table in (*first, *tables)],
        entries=entries,
        left_out=left_out,
    )
    write_atomic(target, page)
    return target


def verdict_cells(verdict: Verdict) -> list[float | int | str | None]:
    """Return the cells of `VERDICT_COLUMNS` for a verdict."""
    ours, baseline = verdict.values
    margin = verdict.margin or "no baseline"
    return [verdict.quantity, ours, baseline, verdict.rival_name or "–", margin]


def _link(path: Path, page: Path) -> str:
    return quote(Path(os.path.relpath(path.resolve(), page.resolve().parent)).as_posix())
