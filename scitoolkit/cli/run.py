"""`scitoolkit run`: train, evaluate and report in one command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from scitoolkit.cli import _options as options
from scitoolkit.cli.jobs import job_command

NAME = "run"


def print_outcome(path: Path, as_json: bool) -> None:
    """Print the results of a finished run and the paths of its directory and report."""
    from scitoolkit.core.results import Results

    results = Results.read(path)
    report = path / "report" / "index.html"
    if as_json:
        outcome: dict[str, Any] = {"run": str(path), "report": str(report)}
        options.print_json({**outcome, "metrics": results.metrics, "units": results.units})
        return
    print_results(results)
    print(f"run     {path}\nreport  {report}")


def print_results(results: Any) -> None:
    """Print the title, summary and tables of a `Results` as text."""
    from scitoolkit.reporting import text_table

    print(f"\n{results.title}\n")
    for sentence in results.summary:
        print(f"  {sentence}")
    for table in results.tables:
        print(f"\n{text_table(table)}")
    print()


command = job_command(
    "run",
    "Train, evaluate and report in one command.",
    print_outcome,
    config=Annotated[
        Path,
        typer.Argument(
            metavar="WORKFLOW",
            help="A YAML file, a workflow folder, or the name of a workflow.",
        ),
    ],
    ranks=True,
    sweeps=True,
)
