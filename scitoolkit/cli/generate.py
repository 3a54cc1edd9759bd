"""`scitoolkit generate`: make a campaign of training data with a solver, or continue one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scitoolkit.cli import _options as options
from scitoolkit.cli.run import print_outcome

NAME = "generate"


def command(
    config: Annotated[Path, typer.Argument(help="A YAML file, a workflow folder, or a name.")],
    overrides: options.Overrides = None,
    samples: Annotated[int | None, typer.Option(min=1, help="Number of samples.")] = None,
    processes: Annotated[int | None, typer.Option(min=1, help="Samples at a time.")] = None,
    resume: options.Resume = False,
    run_dir: options.RunDir = None,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
    verbose: options.Verbose = False,
) -> int | None:
    """Make training data with a solver; --resume makes what a killed run did not finish."""
    settings = [
        *(overrides or []),
        *([f"draw.samples={samples}"] if samples else []),
        *([f"processes={processes}"] if processes else []),
    ]
    return options.run_job(
        "generate", config, settings, lambda path: print_outcome(path, as_json),
        resume=resume, run_dir=run_dir, dry_run=dry_run, verbose=verbose,
    )  # fmt: skip
