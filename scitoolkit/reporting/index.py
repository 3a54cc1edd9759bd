"""Index page with links to the reports of several runs, their verdicts and first figures."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from scitoolkit.core.results import Results
from scitoolkit.core.run_directory import write_atomic
from scitoolkit.reporting.page import template
from scitoolkit.reporting.style import display_text


def write_index(target: Path, runs: Sequence[Path], left_out: Mapping[str, str]) -> Path:
    """Write an index page with relative links, so that the folder can be moved or served.

    Args:
        target: the page to write; the runs may be below its folder or elsewhere on this machine.
        runs: run directories with results.json and report/index.html.
        left_out: for each workflow that was not run, the reason.

    Returns:
        The path of the page.

    Raises:
        DataError: a run has no results.
    """
    entries = []
    for run in runs:
        results = Results.read(run)
        images = sorted((run / "report").glob("01-*.png"))
        entries.append(
            {
                "title": display_text(results.title),
                "verdict": results.verdict.sentence if results.verdict else "",
                "report": _link(run / "report" / "index.html", target),
                "image": _link(images[0], target) if images else "",
            }
        )
    write_atomic(target, template("index.html").render(entries=entries, left_out=left_out))
    return target


def _link(path: Path, page: Path) -> str:
    return quote(Path(os.path.relpath(path.resolve(), page.resolve().parent)).as_posix())
