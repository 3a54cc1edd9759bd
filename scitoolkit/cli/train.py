"""`scitoolkit train`: train into a new run directory, or continue one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scitoolkit.cli import _options as options
from scitoolkit.core.log import setup_logging

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
    from scitoolkit import api

    setup_logging(verbose=verbose)
    if dry_run:
        options.print_json(dict(api.check(config, overrides or [])))
        return None
    if nproc > 1:
        api.load(config, overrides or [])
        return options.relaunch(nproc)
    run = api.train(config, overrides or [], resume=resume, run_dir=run_dir)
    if options.is_main_rank():
        if as_json:
            options.print_json({"run": str(run.path)})
        else:
            print(run.path)
    return None
