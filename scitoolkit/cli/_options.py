"""Options that several commands share, declared once."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from scitoolkit.core.log import setup_logging

Overrides = Annotated[
    list[str] | None, typer.Argument(help="Settings that win over the file: section.key=value")
]
Json = Annotated[bool, typer.Option("--json", help="Print exactly one JSON object.")]
NProc = Annotated[int, typer.Option("--nproc", min=1, help="Processes on this machine.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue the newest run, bit for bit.")]
RunDir = Annotated[Path | None, typer.Option("--run-dir", help="The run that --resume continues.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Do all but write, then say what.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log details.")]


def print_json(value: Any) -> None:
    """Print one JSON object on stdout."""
    print(json.dumps(value, default=str))


def run_job(
    action: str,
    config: Path,
    settings: list[str],
    show: Callable[[Path], int | None],
    *,
    nproc: int = 1,
    resume: bool = False,
    run_dir: Path | None = None,
    dry_run: bool = False,
    verbose: bool = False,
) -> int | None:
    """Do what `run`, `train` and `search` share: check only, start ranks, or do `api.ACTION`.

    Args:
        action: name of the function of `scitoolkit.api`.
        config: file, folder or name of a workflow.
        settings: `section.key=value` settings.
        show: prints the outcome of a run directory, on rank 0; its result is the exit code.
        nproc: processes of this machine.
        resume: see `api.run`.
        run_dir: see `api.run`.
        dry_run: do all but write.
        verbose: log details.
    """
    from scitoolkit import api

    setup_logging(verbose=verbose)
    if dry_run:
        print_json(dict(api.check(config, settings)))
        return None
    if nproc > 1:
        api.load(config, settings)  # an error of the configuration is printed once, not by rank
        return relaunch(nproc)
    run = getattr(api, action)(config, settings, resume=resume, run_dir=run_dir)
    return show(run.path) if run is not None and is_main_rank() else None


def relaunch(nproc: int) -> int:
    """Start this very command `nproc` times as ranks of one job; return its exit code."""
    from scitoolkit.training.launch import launch

    arguments = sys.argv[1:]
    kept = [
        argument
        for position, argument in enumerate(arguments)
        if not argument.startswith("--nproc")
        and (position == 0 or arguments[position - 1] != "--nproc")
    ]
    return launch(nproc, kept)


def is_main_rank() -> bool:
    """Return whether this process is the one that speaks."""
    from scitoolkit.core.processes import current_rank

    return current_rank() == 0
