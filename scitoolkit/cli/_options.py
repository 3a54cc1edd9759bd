"""Options that several commands share, declared once."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

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
    from scitoolkit.training.launch import current_rank

    return current_rank() == 0
