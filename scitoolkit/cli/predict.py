"""`scitoolkit predict`: apply a run or surrogate to a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scitoolkit.cli import _options as options
from scitoolkit.core.log import setup_logging

NAME = "predict"


def command(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="RUN",
            help="A run directory, a folder of runs (the newest), or a surrogate's name.",
        ),
    ],
    source: Annotated[Path, typer.Argument(metavar="INPUT", help="The input file.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The NetCDF file to write.")],
    steps: Annotated[
        int | None, typer.Option(min=0, help="Number of steps beyond the file's last sample.")
    ] = None,
    lead: Annotated[
        int | None, typer.Option(min=1, help="Samples per step, for emulators of several leads.")
    ] = None,
    forcing: Annotated[
        Path | None,
        typer.Option(help="File of inputs that change in time, or `hold` for their last values."),
    ] = None,
    times: Annotated[
        str | None, typer.Option(help="Times of the steps, if their length is an input: 0.1,0.25")
    ] = None,
    device: options.Device = "auto",
    nproc: options.NProc = 1,
    as_json: options.Json = False,
    verbose: options.Verbose = False,
) -> int | None:
    """Apply a run or a shipped surrogate to a file; the output opens in xarray."""
    from scitoolkit import api

    setup_logging(verbose=verbose)
    if nproc > 1:
        api.check_processes(directory, nproc, "predict", steps)
        return options.relaunch(nproc)
    path = api.predict(directory, source, output, steps, lead, device, forcing=forcing, times=times)
    if not options.is_main_rank():
        return None
    if as_json:
        options.print_json({"output": str(path)})
    else:
        print(path)
    return None
