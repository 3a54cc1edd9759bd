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
    """Show the variables of a file: dims, units, chunks, what training reads, error bounds."""
    from scitoolkit.io.inspect import describe

    compressed = _compressed(path)
    if compressed:
        if as_json:
            options.print_json({"path": str(path), "format": "scitoolkit", "variables": compressed})
            return
        for one in compressed:
            print(_compressed_line(one))
        return
    found = describe(path)
    if as_json:
        options.print_json(found)
        return
    print(f"{found['path']}: {found['format']}, {_size(found['bytes'])}")
    for variable in found["variables"]:
        print(_line(variable))
        for line in _training(variable):
            print(f"      {line}")


def _compressed(path: Path) -> list[dict[str, Any]]:
    """Return what the streams of a compressed file say; empty for any other file."""
    from scitoolkit.io.compressed import holds_streams

    if not holds_streams(path):
        return []
    from scitoolkit.compression.check import describe_streams

    return describe_streams(path)


def _compressed_line(v: dict[str, Any]) -> str:
    bound = f"{v['bound']['mode']} {v['bound']['value']:g}"
    enhancer = v.get("enhancer", {}).get("name", "no enhancer")
    return (
        f"  {v['name']}{tuple(v['shape'])} {v['dtype']}  {v['bytes']} bytes ({v['ratio']:.1f}x)  "
        f"{v['base']['name']} + {enhancer}  bound {bound}, largest error {v['max_error']:.4g}"
    )


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


def _training(v: dict[str, Any]) -> list[str]:
    """Say what random reading costs, where it costs more than it must."""
    reads = v["training"]
    if reads is None or reads["one_by_one"] < 1.5:
        return []
    lines = [
        f"training in random order reads every sample {reads['one_by_one']:.1f} times an epoch "
        f"one by one, {reads['planned']:.1f} times by PlannedLoader with a quarter of them in "
        "memory"
    ]
    if reads["rechunk"]:
        chunks = "x".join(map(str, reads["rechunk"]))
        lines.append(f"with chunks of {chunks} any loader reads it {_times(reads['rechunk'][0])}")
    return lines


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
