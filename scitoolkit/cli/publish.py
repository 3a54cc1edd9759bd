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
        Path,
        typer.Argument(
            metavar="NAME", help="Name in surrogates/, a folder, or NAME@VERSION with --to."
        ),
    ],
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="INDEX", help="Index of models: a folder, or hf://OWNER."),
    ] = None,
    licence: Annotated[
        str, typer.Option("--licence", help="With --to: licence of the weights (SPDX).")
    ] = "",
    as_json: options.Json = False,
) -> None:
    """Turn an evaluated run into a shipped surrogate or a version in an index, with its card."""
    from scitoolkit import api

    setup_logging()
    if to is None:
        path: Path | str = api.publish(directory, destination)
    else:
        path = api.publish_to(directory, to, str(destination), licence=licence)
    if as_json:
        options.print_json({"surrogate": str(path)})
    else:
        print(path)
