"""`scitoolkit report`: redraw the report of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scitoolkit.cli import _options as options
from scitoolkit.core.log import setup_logging

NAME = "report"


def command(
    directory: Annotated[Path, typer.Argument(metavar="RUN", help="A run directory.")],
    as_json: options.Json = False,
) -> None:
    """Draw report/index.html from the results in a run directory."""
    from scitoolkit import api

    setup_logging()
    path = api.report(directory)
    if as_json:
        options.print_json({"report": str(path)})
    else:
        print(path)
