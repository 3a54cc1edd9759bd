"""`scitoolkit inspect`: contents and storage layout of a data file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from scitoolkit.cli import _options as options
from scitoolkit.core.errors import DataError

if TYPE_CHECKING:
    from scitoolkit.io.atoms_summary import AtomsSummary

NAME = "inspect"
_SMALL = 1 << 16  # bytes of a variable that is read at once, such as the bounds of the times


def command(
    path: Annotated[
        Path,
        typer.Argument(
            metavar="FILE",
            help="A file (HDF5, NetCDF, Zarr, extxyz, ...), a folder, or a quoted pattern.",
        ),
    ],
    as_json: options.Json = False,
) -> None:
    """Show the variables of a file: dims, units, roles, chunks, error bounds, cost of random reads.

    A role is what a variable or dim is taken for, with the attribute or name that states it.

    Of atomic configurations: number of frames, species, and labels.
    """
    from scitoolkit.core.content import shipped_path
    from scitoolkit.io.atoms import is_atoms
    from scitoolkit.io.campaign.files import campaign_files
    from scitoolkit.io.inspect import describe, roles_in

    path = shipped_path(path)
    compressed = _compressed(path)
    if compressed:
        if as_json:
            options.print_json({"path": str(path), "format": "scitoolkit", "variables": compressed})
            return
        for one in compressed:
            print(_compressed_line(one))
        return
    if is_atoms(path):
        _print_atoms(path, as_json)
        return
    files = campaign_files(path)
    campaign = _campaign(path, files)
    if campaign is not None:
        _print_campaign(path, {**campaign, **roles_in(files[0])}, as_json)
        return
    description = describe(files[0] if len(files) == 1 else path)
    if as_json:
        options.print_json(description)
        return
    print(f"{description['path']}: {description['format']}, {_size(description['bytes'])}")
    for variable in description["variables"]:
        print(_line(variable))
        for line in (*_role(description["roles"].get(variable["name"])), *_training(variable)):
            print(f"      {line}")
    for line in _meaning(description):
        print(f"  {line}")


def _campaign(path: Path, files: list[Path]) -> dict[str, Any] | None:
    """Describe the campaign in a folder, pattern or file; None if there is one simulation."""
    from scitoolkit.io.campaign import CampaignOptions, open_campaign

    if files == [path] and path.suffix not in (".h5", ".hdf5"):
        return None
    try:
        # Only the layout is shown, so samples need no order in time.
        campaign = open_campaign(path, options=CampaignOptions(lead=0))
    except DataError:
        if files == [path]:
            return None
        raise
    several = len(files) > 1 or campaign.index.num_simulations > 1
    return campaign.describe() if several else None


def _print_campaign(path: Path, summary: dict[str, Any], as_json: bool) -> None:
    if as_json:
        options.print_json({"path": str(path), **summary})
        return
    low, high = summary["rows_of_a_simulation"]
    rows = f"{low}" if low == high else f"{low} to {high}"
    print(f"{path}: campaign, layout {summary['layout']}")
    print(f"  {summary['simulations']} simulations of {rows} rows in {summary['files']} files")
    print(f"  first simulations: {', '.join(summary['first_simulations'])}")
    for name, channel in summary["channels"].items():
        units = f" [{channel['units']}]" if channel["units"] else ""
        print(f"  {name}{units}: {channel['variable']}({', '.join(channel['axes'])})")
    for name, told in summary["roles"].items():
        if told["role"] != "field":
            print(f"  {name}, not learned unless named: {told['role']}, {told['because']}")
    if summary["others"]:
        print(f"  no numbers, never read: {', '.join(summary['others'])}")


def _print_atoms(path: Path, as_json: bool) -> None:
    from scitoolkit.io.atoms_summary import summarize_atoms
    from scitoolkit.io.inspect import bytes_of

    summary = summarize_atoms([path])
    size = bytes_of(path)
    if as_json:
        labels = summary.labels.model_dump(mode="json")
        options.print_json(
            {
                "path": str(path),
                "format": "atoms",
                "bytes": size,
                **asdict(summary),
                "labels": labels,
            }
        )
        return
    low, high = summary.atoms
    atoms = f"{low}" if low == high else f"{low} to {high}"
    periodic = " or ".join(map(str, summary.periodic))
    print(f"{path}: atomic configurations, {_size(size)}")
    print(f"  frames: {summary.frames}, atoms: {atoms}, periodic directions: {periodic}")
    print(f"  species: {' '.join(summary.species)}{_of(summary)}")
    names = summary.labels
    if summary.energy is not None:
        low_energy, high_energy = summary.energy
        print(
            f"  {names.energy_key}: {low_energy:.6g} to {high_energy:.6g} eV per atom{_of(summary)}"
        )
    if summary.forces is not None:
        print(f"  {names.forces_key}: root mean square {summary.forces:.4g} eV/Å{_of(summary)}")
    if summary.virial:
        print(f"  {names.virial_key} of all frames{_of(summary)}")
    if summary.energy is None and summary.forces is None:
        print("  no labels of all frames")


def _of(atoms: AtomsSummary) -> str:
    return "" if atoms.read == atoms.frames else f" (of {atoms.read} frames)"


def _compressed(path: Path) -> list[dict[str, Any]]:
    """Describe the streams of a compressed file; empty for any other file."""
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
    import numpy as np

    extent = ", ".join(f"{d}={n}" for d, n in zip(v["dims"], v["shape"], strict=True))
    layout = f"chunks {'x'.join(map(str, v['chunks']))}" if v["chunks"] else "contiguous"
    filters = f", {v['filters']}" if v["filters"] else ""
    ratio = f" ({v['bytes'] / v['stored_bytes']:.1f}x)" if v["stored_bytes"] else " (not written)"
    units = f" [{v['units']}]" if v["units"] else ""
    return (
        f"  {v['name']}({extent}) {np.dtype(v['dtype']).name}{units}  {layout}{filters}"
        f"  {_size(v['bytes'])}{ratio}"
    )


def _role(told: Mapping[str, str] | None) -> list[str]:
    return [] if told is None else [f"{told['role']}: {told['because']}"]


def _meaning(description: Mapping[str, Any]) -> list[str]:
    """Describe the dims of the fields, what holds no numbers, and why roles are not told."""
    lines = [
        f"dim {n}: {told['role']}, by {told['because']}" for n, told in description["dims"].items()
    ]
    if description["others"]:
        lines.append(f"no numbers, never read: {', '.join(description['others'])}")
    return [
        *lines,
        *([f"roles not told: {description['remark']}"] if description["remark"] else []),
    ]


def _training(v: dict[str, Any]) -> list[str]:
    """Describe the cost of reading in random order, if it is avoidable and of weight."""
    reads = v["training"]
    if reads is None or reads["one_by_one"] < 1.5 or v["bytes"] < _SMALL:
        return []
    lines = [
        f"in random order an epoch reads every sample {reads['one_by_one']:.1f} times if read one "
        f"by one, {reads['planned']:.1f} times with PlannedLoader and a quarter of the samples in "
        "memory"
    ]
    if reads["rechunk"]:
        chunks = "x".join(map(str, reads["rechunk"]))
        once = _times(reads["rechunk"][0])
        lines.append(
            f"with chunks of {chunks} any loader reads them {once}; scitoolkit cp FILE NAME.zarr "
            "writes chunks of one sample"
        )
    return lines


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
