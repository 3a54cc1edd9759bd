"""`scitoolkit compress`, `decompress` and `verify`: whole files within an error bound."""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from scitoolkit.cli import _options as options

_QUALITY = (
    ("DSSIM", "dssim", ".5f"), ("K-S", "ks", ".2g"), ("spectrum", "spectrum", ".2%"),
    ("gradients", "gradient", ".2%"), ("extremes", "extremes", ".2%"),
)  # fmt: skip
Source = Annotated[Path, typer.Argument(metavar="IN", help=".npy, HDF5, NetCDF, .f32, .f64.")]
Target = Annotated[Path, typer.Argument(metavar="OUT", help="File to write.")]


class Container(StrEnum):
    """What compressed variables are in the file."""

    stream = "stream"
    filter = "filter"


def compress(
    source: Source,
    target: Target,
    abs_: Annotated[float | None, typer.Option("--abs", help="Largest |x - x'|.")] = None,
    rel: Annotated[float | None, typer.Option(help="... as a share of the range.")] = None,
    pw_rel: Annotated[float | None, typer.Option(help="Largest |x - x'| / |x|.")] = None,
    psnr: Annotated[float | None, typer.Option(help="Least PSNR in dB instead.")] = None,
    variable: Annotated[
        list[str] | None,
        typer.Option(help="NAME or NAME=MODE:VALUE, e.g. t=rel:1e-4; default all floats."),
    ] = None,
    codec: Annotated[
        str, typer.Option("--codec", "--base", help="auto, or one of `scitoolkit ls codec`.")
    ] = "auto",
    enhancer: Annotated[
        str, typer.Option(help="auto, none, or one of `scitoolkit ls enhancer`.")
    ] = "auto",
    guarantee: Annotated[
        str, typer.Option("--guarantee", "--bound", help="strict, or relaxed (2 bounds).")
    ] = "strict",
    train_seconds: Annotated[
        float,
        typer.Option("--train-seconds", "--seconds", min=0, help="Training time of enhancers."),
    ] = 0.0,
    objective: Annotated[
        str, typer.Option("--for", help="size (fewest bytes), quality (PSNR), speed.")
    ] = "size",
    missing: Annotated[
        list[float] | None,
        typer.Option(help="A value that stands for missing; may be given several times."),
    ] = None,
    quantity: Annotated[
        list[str] | None,
        typer.Option(help="A bound on what is computed, e.g. 'sqrt(u^2+v^2): abs=1e-2'."),
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option(help="Extents of a raw file (.f32, .f64), slowest first: 64x128x128."),
    ] = None,
    container: Annotated[
        Container, typer.Option(help="stream, or filter: datasets that h5dump, netCDF, ... read.")
    ] = Container.stream,
    as_json: options.Json = False,
) -> None:
    """Compress the float variables of a file; every point keeps the bound."""
    from scitoolkit.compression import Bound, Options
    from scitoolkit.compression.files import FilePlan, compress_file
    from scitoolkit.compression.missing import MissingValues
    from scitoolkit.compression.raw import shape_of

    bounds = {"abs": abs_, "rel": rel, "pw_rel": pw_rel, "psnr": psnr}
    given = not quantity or any(value is not None for value in bounds.values())
    default = Bound.choose(**bounds) if given else None
    own = dict(_variable(text) for text in variable or [])
    chosen: dict[str, Any] = {"codec": codec, "enhancer": enhancer, "guarantee": guarantee,
                              "objective": objective}  # fmt: skip
    plan = FilePlan(default, own, Options(**chosen, train_seconds=train_seconds),
                    MissingValues.of(missing), tuple(quantity or ()),
                    shape_of(shape) if shape else None, container.value)  # fmt: skip
    records = compress_file(source, target, plan)
    before, after = source.stat().st_size, target.stat().st_size
    if as_json:
        options.print_json({"variables": records, "bytes_in": before, "bytes_out": after})
        return
    for record in records:
        print(_line(record))
    print(f"{source}: {before} -> {after} bytes ({before / after:.1f}x)")


def decompress(source: Source, target: Target, as_json: options.Json = False) -> None:
    """Write back what `compress` wrote, each value within its bound."""
    from scitoolkit.compression.files import decompress_file

    names = decompress_file(source, target)
    if as_json:
        options.print_json({"variables": names})
    else:
        print(f"{target}: {', '.join(names)}")


def verify(
    source: Annotated[Path, typer.Argument(metavar="FILE", help="A compressed file.")],
    original: Annotated[Path, typer.Argument(metavar="ORIGINAL", help="What it was made of.")],
    as_json: options.Json = False,
) -> None:
    """Compare a compressed file with its original; exit code 4 when a bound does not hold."""
    from scitoolkit.compression.check import verify_file
    from scitoolkit.core.errors import NumericalError

    records = verify_file(source, original, with_quality=True)
    if as_json:
        options.print_json({"variables": records})
    else:
        for r in records:
            print(
                f"  {r['name']}  max error {r['max_error']:.4g} of {r['allowed']:.4g}  "
                + (f"PSNR {r['psnr']:.2f} dB  " if r["psnr"] < math.inf else "")
                + ("ok" if r["holds"] else f"BROKEN {r['problem']}".rstrip())
            )
            if line := "  ".join(f"{n} {r[k]:{f}}" for n, k, f in _QUALITY if r.get(k) is not None):
                print(f"    {line}")
    broken = [r["name"] for r in records if not r["holds"]]
    if broken:
        raise NumericalError(f"the bound does not hold for {', '.join(broken)}", where=str(source))


def _line(r: dict[str, Any]) -> str:
    return (
        f"  {r['name']}{tuple(r['shape'])}  {r['ratio']:.1f}x  {r['bytes']} bytes  "
        f"{r['codec']} + {r['enhancer']}  max error {r['max_error']:.4g} of {r['error_bound']:.4g}"
    )


def _variable(text: str) -> tuple[str, Any]:
    from scitoolkit.compression import Bound
    from scitoolkit.core.errors import ConfigError

    name, _, own = text.partition("=")
    if not own:
        return name, None
    mode, _, value = own.partition(":")
    try:
        return name, Bound.choose(**{mode: float(value)}) if mode else None
    except (TypeError, ValueError):
        raise ConfigError(
            f"--variable {text}", allowed="NAME or NAME=MODE:VALUE", fix="--variable t=rel:1e-4"
        ) from None
