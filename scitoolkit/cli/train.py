"""`scitoolkit train`: train into a new run directory, or continue one."""

from __future__ import annotations

from pathlib import Path

from scitoolkit.cli import _options as options
from scitoolkit.cli.jobs import job_command

NAME = "train"


def print_directory(path: Path, as_json: bool) -> None:
    """Print the path of the run."""
    if as_json:
        options.print_json({"run": str(path)})
    else:
        print(path)


command = job_command(
    "train",
    "Train into a new run directory, or continue one with --resume.",
    print_directory,
    ranks=True,
)
