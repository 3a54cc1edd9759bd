"""`scitoolkit publish`: make a shipped surrogate of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scitoolkit.cli import _options as options
from scitoolkit.core.log import setup_logging

NAME = "publish"


def command(
    directory: Annotated[Path, typer.Argument(metavar="RUN", help="An evaluated run.")],
    destination: Annotated[Path, typer.Argument(metavar="NAME", help="A name, or a folder.")],
    as_json: options.Json = False,
) -> None:
    """Make a shipped surrogate of a run, with the figures of its card."""
    from scitoolkit import api

    setup_logging()
    path = api.publish(directory, destination)
    if as_json:
        options.print_json({"surrogate": str(path)})
    else:
        print(path)
