"""`scitoolkit train`: train into a new run directory, or continue one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scitoolkit.cli import _options as options

NAME = "train"


def command(
    config: Annotated[Path, typer.Argument(help="A YAML file, a workflow folder, or a name.")],
    overrides: options.Overrides = None,
    nproc: options.NProc = 1,
    resume: options.Resume = False,
    run_dir: options.RunDir = None,
    dry_run: options.DryRun = False,
    as_json: options.Json = False,
    verbose: options.Verbose = False,
) -> int | None:
    """Train into a new run directory, or continue one with --resume."""

    def show(path: Path) -> None:
        if as_json:
            options.print_json({"run": str(path)})
        else:
            print(path)

    return options.run_job(
        "train", config, overrides or [], show,
        nproc=nproc, resume=resume, run_dir=run_dir, dry_run=dry_run, verbose=verbose,
    )  # fmt: skip
