"""`scitoolkit inspect`: what a data file holds and how it is laid out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from scitoolkit.cli import _options as options

NAME = "inspect"


def command(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="HDF5, NetCDF or Zarr.")],
    as_json: options.Json = False,
) -> None:
    """Show the variables of a data file: dims, units, chunks, compression."""
    from scitoolkit.io.inspect import describe

    found = describe(path)
    if as_json:
        options.print_json(found)
        return
    print(f"{found['path']}: {found['format']}, {_size(found['bytes'])}")
    for variable in found["variables"]:
        print(_line(variable))


def _line(v: dict[str, Any]) -> str:
    extent = ", ".join(f"{d}={n}" for d, n in zip(v["dims"], v["shape"], strict=True))
    layout = f"chunks {'x'.join(map(str, v['chunks']))}" if v["chunks"] else "contiguous"
    filters = f", {v['filters']}" if v["filters"] else ""
    ratio = f" ({v['bytes'] / v['stored_bytes']:.1f}x)" if v["stored_bytes"] else " (not written)"
    units = f" [{v['units']}]" if v["units"] else ""
    return (
        f"  {v['name']}({extent}) {v['dtype']}{units}  {layout}{filters}"
        f"  {_size(v['bytes'])}{ratio}"
    )


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
