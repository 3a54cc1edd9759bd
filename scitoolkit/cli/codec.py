"""`scitoolkit codec`: installation of the HDF5 filter for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scitoolkit.cli import _options as options

app: typer.Typer = typer.Typer(
    help="Install the compressor for other programs.",
    no_args_is_help=True,
    cls=options.CommandGroup,
)


@app.command("install")
def install(
    directory: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of HDF5 plug-ins.")],
    as_json: options.Json = False,
) -> None:
    """Build the HDF5 filter into a folder, for h5dump, h5repack, netCDF and h5py."""
    from scitoolkit.compression.native.plugin import FILTER_ID, install

    library = install(directory)
    if as_json:
        options.print_json({"library": str(library), "filter": FILTER_ID})
        return
    print(f"{library}: HDF5 filter {FILTER_ID}")
    print(f"export HDF5_PLUGIN_PATH={library.parent.resolve()}")


@app.callback()
def _codec() -> None:
    """Install the compressor for other programs."""
