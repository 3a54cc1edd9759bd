"""Reports of a running trial, in its folder: what a dashboard shows before the trial has finished.

The log has the epochs of a trial once its stage has finished. Until then the trial itself writes
each report, wherever it runs, to a file beside its checkpoints; a training of a job has metrics
there already, while it reports its epochs at the end.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scitoolkit.core.errors import DataError
from scitoolkit.core.run_directory import RunDirectory

FILE_NAME = "reports.jsonl"


def trial_folder(directory: Path, number: int) -> Path:
    """Return the folder of a trial in the run directory of its search; it may not exist."""
    return directory / "trials" / f"{number:06d}"


def write_report(folder: Path, row: Mapping[str, float | None], *, first: bool) -> None:
    """Append the report of an epoch.

    Args:
        folder: of the trial.
        row: `epoch` and metrics; None for values that are not finite.
        first: whether it is the first report of this attempt, which replaces those of others.
    """
    with (folder / FILE_NAME).open("w" if first else "a", encoding="utf-8") as file:
        file.write(json.dumps(row, allow_nan=False) + "\n")


def read_reports(folder: Path) -> list[dict[str, Any]]:
    """Return what a running trial has reported so far, one row per epoch; [] without any.

    A training of a job that continues in a later stage has reports of the stages before and metrics
    of all; reports count where both have an epoch.

    Example:
        >>> import tempfile
        >>> folder = Path(tempfile.mkdtemp())
        >>> write_report(folder, {"epoch": 1, "loss": 0.5}, first=True)
        >>> read_reports(folder)
        [{'epoch': 1, 'loss': 0.5}]
    """
    rows: dict[int, dict[str, Any]] = {}
    # An evaluation of the user may write a file of this name itself; a folder may just be removed.
    with contextlib.suppress(DataError, FileNotFoundError):
        rows |= {row["epoch"]: row for row in run_epochs(RunDirectory(folder))}
    with contextlib.suppress(FileNotFoundError):
        lines = (folder / FILE_NAME).read_text(encoding="utf-8").split("\n")
        # What follows the last end of a line is still being written.
        rows |= {row["epoch"]: row for row in map(json.loads, lines[:-1])}
    return list(rows.values())


def run_epochs(run: RunDirectory) -> list[dict[str, Any]]:
    """Return the validation metrics of every epoch as arguments of `TrialContext.report`."""
    rows: dict[int, dict[str, Any]] = {}
    for row in run.read_metrics():
        part, _, name = row["name"].rpartition("/")
        if part == "validation" and row["value"] is not None:
            rows.setdefault(row["step"], {"epoch": len(rows) + 1})[name] = row["value"]
    return list(rows.values())
