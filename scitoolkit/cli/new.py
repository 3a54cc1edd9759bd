"""`scitoolkit new`: skeleton package of a plug-in."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scitoolkit.cli import _options as options
from scitoolkit.cli.content import plugin_kind

NAME = "new"


def command(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="A plug-in kind listed by `scitoolkit ls`.")
    ],
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the new plug-in.")],
    folder: Annotated[
        Path | None,
        typer.Option("--folder", help="Folder to create; ./scitoolkit-NAME by default."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Create a package for a new plug-in, with entry point, module and test."""
    from scitoolkit.core.skeleton import write_skeleton

    target = folder or Path(f"scitoolkit-{name.replace('_', '-')}")
    files = write_skeleton(plugin_kind(kind), name, target)
    if as_json:
        options.print_json({"files": [str(file) for file in files]})
        return
    print("\n".join(str(file) for file in files))
    print(f"next: pip install -e {target}, then pytest {target}")
