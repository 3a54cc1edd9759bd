"""`scitoolkit evaluate`: metrics of a run or surrogate on its test part or another file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scitoolkit.cli import _options as options
from scitoolkit.cli.run import print_results
from scitoolkit.core.log import setup_logging

NAME = "evaluate"


def command(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="RUN",
            help="A run directory, a folder of runs (the newest), or a surrogate's name.",
        ),
    ],
    data: Annotated[
        Path | None, typer.Option("--data", help="Evaluate on this file; results are only printed.")
    ] = None,
    device: options.Device = "auto",
    nproc: options.NProc = 1,
    as_json: options.Json = False,
    verbose: options.Verbose = False,
) -> int | None:
    """Evaluate a run or a shipped surrogate."""
    from scitoolkit import api

    setup_logging(verbose=verbose)
    if nproc > 1:
        api.check_processes(directory, nproc, "evaluate")
        return options.relaunch(nproc)
    results = api.evaluate(directory, data, device)
    if not options.is_main_rank():
        return None
    if as_json:
        options.print_json(results.model_dump(mode="json", exclude={"figures"}))
    else:
        print_results(results)
    return None
