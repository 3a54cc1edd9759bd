"""`scitoolkit search`: search a configuration space, or continue a search."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from scitoolkit.cli.jobs import job_command
from scitoolkit.cli.run import print_outcome
from scitoolkit.core.errors import EXIT_FAILURE, EXIT_OK

NAME = "search"


def outcome_code(metrics: Mapping[str, Any]) -> int:
    """Return exit code 1 if more trials failed than succeeded, which makes a search unreliable.

    Example:
        >>> outcome_code({"trials_done": 9, "trials_failed": 1})
        0
    """
    failed = metrics["trials_failed"] > metrics["trials_done"]
    return EXIT_FAILURE if failed else EXIT_OK


def print_search(path: Path, as_json: bool) -> int:
    """Print the results of a search and return its exit code."""
    from scitoolkit.core.results import Results

    print_outcome(path, as_json)
    return outcome_code(Results.read(path).metrics)


def settings(
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Number of trials at the same time.")
    ] = None,
) -> list[str]:
    """Return the settings of the options."""
    return [f"budget.workers={workers}"] if workers else []


command = job_command(
    "search",
    "Search architectures, train the best one and report; --resume continues after a kill.",
    print_search,
    settings=settings,
)
