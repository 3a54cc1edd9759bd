"""`scitoolkit search`: search an architecture, or continue a search."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from scitoolkit.cli import _options as options
from scitoolkit.core.errors import EXIT_FAILURE, EXIT_OK

NAME = "search"


def command(
    config: Annotated[Path, typer.Argument(help="A YAML file, a workflow folder, or a name.")],
    overrides: options.Overrides = None,
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Trials that run at a time.")
    ] = None,
    resume: options.Resume = False,
    run_dir: options.RunDir = None,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
    verbose: options.Verbose = False,
) -> int | None:
    """Search an architecture, train the winner and report; nothing is lost when it is killed."""
    from scitoolkit.cli.run import print_outcome
    from scitoolkit.core.results import Results

    def show(path: Path) -> int:
        print_outcome(path, as_json)
        return outcome_code(Results.read(path).metrics)

    settings = [*(overrides or []), *([f"budget.workers={workers}"] if workers else [])]
    return options.run_job(
        "search", config, settings, show,
        resume=resume, run_dir=run_dir, dry_run=dry_run, verbose=verbose,
    )  # fmt: skip


def outcome_code(metrics: Mapping[str, Any]) -> int:
    """Return 1 when more trials failed than gave a result: the search is not to be relied on.

    Example:
        >>> outcome_code({"trials_done": 9, "trials_failed": 1})
        0
    """
    failed = metrics["trials_failed"] > metrics["trials_done"]
    return EXIT_FAILURE if failed else EXIT_OK
