"""`scitoolkit runs`: list, compare and clean run directories."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scitoolkit.cli import _options as options
from scitoolkit.core.errors import ConfigError

if TYPE_CHECKING:
    from scitoolkit.core.run_list import Comparison, RunSummary

Root = Annotated[Path, typer.Option("--root", help="Folder of the runs (run.root).")]
Workflow = Annotated[str, typer.Option("--workflow", help="Only the runs of this workflow.")]
RUNS = Path("runs")

app = typer.Typer(help="List, compare and clean run directories.", cls=options.CommandGroup)


@app.callback(invoke_without_command=True)
def _without_command(
    context: typer.Context,
    root: Root = RUNS,
    workflow: Workflow = "",
    as_json: options.Json = False,
) -> None:
    """List run directories, the newest first, or compare or clean them."""
    command = context.invoked_subcommand
    if command is None:
        list_runs(root, workflow, as_json)
    elif root != RUNS or workflow or as_json:
        raise ConfigError(
            f"options before `{command}`",
            where="scitoolkit runs",
            fix=f"scitoolkit runs {command} with the options after it",
        )


@app.command("list")
def list_runs(root: Root = RUNS, workflow: Workflow = "", as_json: options.Json = False) -> None:
    """List runs with start, status, size and result, the newest first."""
    from scitoolkit import api

    runs = api.list_runs(root, workflow)
    if as_json:
        rows = [{**asdict(run), "path": str(run.path)} for run in runs]
        options.print_json({"root": str(root), "runs": rows})
    elif not runs:
        print(f"no runs in {root}; another folder: --root FOLDER")
    else:
        print(_list_table(runs))


@app.command("compare")
def compare(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN RUN...",
            help="Run directories, names of their folders, or workflows (newest run).",
        ),
    ],
    root: Root = RUNS,
    as_json: options.Json = False,
) -> None:
    """Compare the metrics of evaluated runs, and the settings in which they differ."""
    from scitoolkit import api

    comparison = api.compare_runs(names, root)
    if as_json:
        options.print_json({**asdict(comparison), "runs": [str(path) for path in comparison.runs]})
    else:
        print(_comparison(comparison))


@app.command("clean")
def clean(
    root: Root = RUNS,
    workflow: Workflow = "",
    keep: Annotated[
        int | None,
        typer.Option(min=0, help="Also remove all but the newest KEEP runs of each workflow."),
    ] = None,
    checkpoints: Annotated[
        bool,
        typer.Option(
            "--checkpoints",
            help="Also remove the checkpoints of evaluated runs; they can then not be resumed.",
        ),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove; otherwise only list.")] = False,
    as_json: options.Json = False,
) -> None:
    """Remove empty runs, on request also old runs and checkpoints; without --yes only list them.

    Runs that changed within the last hour and since their evaluation are kept.
    """
    from scitoolkit import api
    from scitoolkit.core.memory import readable_bytes

    removed = api.clean_runs(root, workflow, keep=keep, checkpoints=checkpoints, remove=yes)
    total = sum(removal.bytes for removal in removed)
    if as_json:
        rows = [{**asdict(removal), "path": str(removal.path)} for removal in removed]
        options.print_json({"removed": yes, "bytes": total, "folders": rows})
        return
    for removal in removed:
        print(f"{removal.path}  {readable_bytes(removal.bytes)}  {removal.reason}")
    if not removed:
        print(f"nothing to remove in {root}")
    elif yes:
        print(f"removed {len(removed)} folders, {readable_bytes(total)}")
    else:
        print(f"{len(removed)} folders, {readable_bytes(total)}; remove them with --yes")


def _list_table(runs: list[RunSummary]) -> str:
    from scitoolkit.core.memory import readable_bytes
    from scitoolkit.core.results import Table
    from scitoolkit.reporting import text_table

    rows: list[list[Any]] = [
        [
            str(run.path),
            run.started[:16].replace("T", " "),
            run.status + (", maybe running" if run.recent else ""),
            readable_bytes(run.bytes),
            f"results cannot be read: {run.problem}" if run.problem else run.verdict or "–",
        ]
        for run in runs
    ]
    columns = ["run", "started (UTC)", "status", "size", "result"]
    return text_table(Table(title="", columns=columns, rows=rows))


def _comparison(comparison: Comparison) -> str:
    from scitoolkit.core.results import Table
    from scitoolkit.reporting import text_table
    from scitoolkit.reporting.tables import format_column

    count = len(comparison.runs)
    names = [chr(ord("A") + i) if count <= 26 else str(i) for i in range(count)]
    lines = [f"{name}: {path}" for name, path in zip(names, comparison.runs, strict=True)]
    settings: list[list[Any]] = [
        [key, *("–" if value is None else str(value) for value in values)]
        for key, values in comparison.settings.items()
    ]
    metrics: list[list[Any]] = [
        [_with_unit(name, comparison.units), *format_column(values)]
        for name, values in comparison.metrics.items()
    ]
    lines.append("")
    for title, rows in (("Settings that differ", settings), ("Metrics", metrics)):
        columns = ["setting" if rows is settings else "metric", *names]
        if rows:
            lines += [text_table(Table(title=title, columns=columns, rows=rows)), ""]
        else:
            lines += [f"{title}: none", ""]
    return "\n".join(lines).rstrip()


def _with_unit(name: str, units: dict[str, str]) -> str:
    unit = units.get(name, "")
    return f"{name} ({unit})" if unit not in ("", "1") else name
