"""`scitoolkit search`: search a configuration space, continue a search, or show one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from scitoolkit.cli import _options as options
from scitoolkit.cli.jobs import job_command
from scitoolkit.cli.run import print_outcome
from scitoolkit.core.errors import EXIT_FAILURE, EXIT_OK
from scitoolkit.core.log import setup_logging

NAME = "search"


def outcome_code(metrics: Mapping[str, Any]) -> int:
    """Return exit code 1 if more trials failed than succeeded, which makes a search unreliable.

    Example:
        >>> outcome_code({"trials_done": 9, "trials_failed": 1})
        0
    """
    failed = metrics["trials_failed"] > metrics["trials_done"]
    return EXIT_FAILURE if failed else EXIT_OK


def print_search(path: Path, as_json: bool) -> int:
    """Print the results of a search and return its exit code."""
    from scitoolkit.core.results import Results

    print_outcome(path, as_json)
    return outcome_code(Results.read(path).metrics)


def settings(
    workers: Annotated[
        int | None, typer.Option("--workers", min=1, help="Number of trials at the same time.")
    ] = None,
) -> list[str]:
    """Return the settings of the options."""
    return [f"budget.workers={workers}"] if workers else []


command = job_command(
    "search",
    "Search architectures, train the best one and report; --resume continues after a kill.",
    print_search,
    settings=settings,
)

DASHBOARD = "dashboard"
pages: typer.Typer = typer.Typer()


@pages.command(DASHBOARD)
def dashboard(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="Run directory of a search.")],
    host: Annotated[
        str, typer.Option("--host", help="Address to bind; 0.0.0.0 for all interfaces.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", min=1, help="Port.")] = 8080,
    export: Annotated[
        Path | None,
        typer.Option("--export", help="Write a journal for optuna-dashboard instead, and end."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Show a search, which may be running, in optuna-dashboard."""
    from scitoolkit.search.dashboard import exported, serve_dashboard

    if export is not None:
        path = exported(run, export)
        options.print_json({"journal": str(path)}) if as_json else print(path)
        return
    setup_logging()
    serve_dashboard(run, host, port)


class SearchCommand(TyperCommand):
    """`search CONFIG`, and `search dashboard RUN` (a folder of that name is `./dashboard`)."""

    def make_context(self, info_name: Any, args: list[str], parent: Any = None, **more: Any) -> Any:
        """Return the context of the command that the arguments name."""
        if args[:1] != [DASHBOARD]:
            return super().make_context(info_name, args, parent, **more)
        page = typer.main.get_command(pages)
        return page.make_context(f"{info_name} {DASHBOARD}", args[1:], parent, **more)


KIND = SearchCommand
