"""`scitoolkit generate`: generate a campaign of training data with a solver, or continue one."""

from __future__ import annotations

from typing import Annotated

import typer

from scitoolkit.cli.jobs import job_command
from scitoolkit.cli.run import print_outcome

NAME = "generate"


def settings(
    samples: Annotated[int | None, typer.Option(min=1, help="Number of samples.")] = None,
    processes: Annotated[
        int | None, typer.Option(min=1, help="Samples computed at the same time.")
    ] = None,
) -> list[str]:
    """Return the settings of the options."""
    settings_of_options = {"draw.samples": samples, "processes": processes}
    return [f"{key}={value}" for key, value in settings_of_options.items() if value]


command = job_command(
    "generate",
    "Generate training data with a solver; --resume completes an interrupted run.",
    print_outcome,
    settings=settings,
)
