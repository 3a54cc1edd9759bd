"""`scitoolkit publish`: turn a run into a shipped surrogate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scitoolkit.cli import _options as options
from scitoolkit.core.log import setup_logging

NAME = "publish"


def command(
    directory: Annotated[Path, typer.Argument(metavar="RUN", help="An evaluated run directory.")],
    destination: Annotated[
        Path, typer.Argument(metavar="NAME", help="Name in surrogates/, or a folder.")
    ],
    as_json: options.Json = False,
) -> None:
    """Turn an evaluated run into a shipped surrogate, with its metrics in the card."""
    from scitoolkit import api

    setup_logging()
    path = api.publish(directory, destination)
    if as_json:
        options.print_json({"surrogate": str(path)})
    else:
        print(path)
