"""`scitoolkit bench`: benchmarks of this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scitoolkit.cli import _options as options

app: typer.Typer = typer.Typer(help="Benchmark this machine.", cls=options.CommandGroup)


@app.callback()
def _group() -> None:
    """Benchmark this machine."""


@app.command("training")
def training(
    settings: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[KEY=VALUE]...", help="Settings, such as width=512 or strategies=[ddp]."
        ),
    ] = None,
    nproc: Annotated[
        int, typer.Option("--nproc", min=2, help="Largest number of processes to measure.")
    ] = 4,
    root: Annotated[Path, typer.Option("--root", help="Folder of the runs.")] = Path("runs"),
    as_json: options.Json = False,
) -> None:
    """Measure data-parallel training strategies and predict them for up to 4,096 processes."""
    from scitoolkit import api
    from scitoolkit.core.log import setup_logging
    from scitoolkit.scaling.run import summary

    setup_logging()
    run, figures = api.bench_training([f"processes={nproc}", *(settings or [])], root)
    page = api.report(run.path)
    if as_json:
        options.print_json({**summary(figures), "run": str(run.path), "report": str(page)})
        return
    from scitoolkit.core.results import Results
    from scitoolkit.reporting import text_table

    for table in Results.read(run.path).tables:
        print(text_table(table), end="\n\n")
    print(page)
