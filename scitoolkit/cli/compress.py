"""`scitoolkit compress`, `decompress` and `verify`: error-bounded compression of files."""

from __future__ import annotations

import math
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from scitoolkit.cli import _options as options

_QUALITY = (
    ("DSSIM", "dssim", ".5f"),
    ("K-S", "ks", ".2g"),
    ("spectrum", "spectrum", ".2%"),
    ("gradients", "gradient", ".2%"),
    ("extremes", "extremes", ".2%"),
)
Sources = Annotated[
    list[Path],
    typer.Argument(
        metavar="IN... OUT",
        help=".npy, HDF5, NetCDF, Zarr (a folder or .zip), .f32, .f64; last the output: a file, or "
        "a folder for several files.",
    ),
]


class Container(StrEnum):
    """Form of the compressed variables in the output file."""

    auto = "auto"
    filter = "filter"
    stream = "stream"


def compress(
    paths: Sources,
    abs_: Annotated[
        float | None, typer.Option("--abs", help="Absolute error bound: largest |x - x'|.")
    ] = None,
    rel: Annotated[
        float | None, typer.Option(help="Error bound relative to the range of the variable.")
    ] = None,
    pw_rel: Annotated[
        float | None, typer.Option(help="Pointwise relative bound: largest |x - x'| / |x|.")
    ] = None,
    psnr: Annotated[float | None, typer.Option(help="Lowest PSNR in dB.")] = None,
    variable: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME or NAME=MODE:VALUE, e.g. t=rel:1e-4; all float variables by default."
        ),
    ] = None,
    codec: Annotated[
        str, typer.Option("--codec", "--base", help="auto, or one of `scitoolkit ls codec`.")
    ] = "auto",
    enhancer: Annotated[
        str,
        typer.Option(
            help="auto, none, one of `scitoolkit ls enhancer`, or a folder made by --train-once."
        ),
    ] = "auto",
    train_once: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Train enhancer networks on the first file, store them there, use them for all.",
        ),
    ] = None,
    guarantee: Annotated[
        str,
        typer.Option(
            "--guarantee", "--bound", help="strict, or relaxed (errors up to twice the bound)."
        ),
    ] = "strict",
    train_seconds: Annotated[
        float,
        typer.Option("--train-seconds", "--seconds", min=0, help="Training time of enhancers, s."),
    ] = 0.0,
    objective: Annotated[
        str, typer.Option("--for", help="Objective: size (fewest bytes), quality (PSNR) or speed.")
    ] = "size",
    missing: Annotated[
        list[float] | None,
        typer.Option(help="Value that marks missing data; may be given several times."),
    ] = None,
    quantity: Annotated[
        list[str] | None,
        typer.Option(help="Bound on a derived quantity, e.g. 'sqrt(u^2+v^2): abs=1e-2'."),
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option(help="Shape of a raw file (.f32, .f64), slowest dim first: 64x128x128."),
    ] = None,
    progressive: Annotated[
        bool,
        typer.Option(
            "--progressive", help="Streams of which the first bytes give a coarse picture."
        ),
    ] = False,
    container: Annotated[
        Container,
        typer.Option(
            help="filter (readable by h5dump, netCDF, Zarr and others), stream (scitoolkit only) "
            "or auto."
        ),
    ] = Container.auto,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Print the plan of every variable, and write nothing."),
    ] = False,
    as_json: options.Json = False,
) -> None:
    """Compress the float variables of files within an error bound at every point."""
    from scitoolkit.compression import Options
    from scitoolkit.compression.files import FilePlan
    from scitoolkit.compression.many import compress_files, pairs_to_write
    from scitoolkit.compression.missing import MissingValues
    from scitoolkit.compression.raw import shape_of
    from scitoolkit.compression.series import NetworkSeries
    from scitoolkit.io.inspect import bytes_of

    bounds = {"abs": abs_, "rel": rel, "pw_rel": pw_rel, "psnr": psnr}
    selected = dict(_variable(text) for text in variable or [])
    # Without a bound for all, each named variable needs one, or a quantity bounds it.
    suffices = quantity or (selected and None not in selected.values())
    stated = any(value is not None for value in bounds.values())
    default = _only_bound(bounds) if stated or not suffices else None
    networks = Path(enhancer) if Path(enhancer).is_dir() else None
    chosen: dict[str, Any] = {
        "codec": _progressive(codec) if progressive else codec,
        "enhancer": "auto" if networks else _trained(enhancer) if train_once else enhancer,
        "guarantee": guarantee,
        "objective": objective,
    }
    plan = FilePlan(
        default,
        selected,
        Options(**chosen, train_seconds=train_seconds),
        MissingValues.of(missing),
        tuple(quantity or ()),
        shape_of(shape) if shape else None,
        container.value,
        networks,
    )
    if dry_run:
        _print_plan(paths if len(paths) == 1 else paths[:-1], plan, as_json=as_json)
        return
    pairs, folder = pairs_to_write(paths, compressing=True)
    if folder is not None:
        options.make_folder(folder)
    done = []
    for source, target, records in compress_files(pairs, plan, train_once=train_once):
        one = {
            "file": str(source),
            "variables": records,
            "bytes_in": bytes_of(source),
            "bytes_out": bytes_of(target),
        }
        done.append(one)
        if not as_json:
            print("\n".join(map(_line, records)))
            print(_sizes(str(source), [one]))
    used = train_once or networks
    account = NetworkSeries(used).account() if used else None
    if as_json:
        shown = done[0] if folder is None else {"files": done}
        options.print_json({**shown, "networks": asdict(account)} if account else shown)
        return
    if len(done) > 1:
        print(_sizes(f"{len(done)} files", done))
    if account:
        print(account.sentence)


def _print_plan(paths: list[Path], plan: Any, *, as_json: bool) -> None:
    """Print a table of the variables of each file: role, bound, codec and bytes."""
    from scitoolkit.compression.planned import planned

    files = {str(path): planned(path, plan) for path in paths}
    if as_json:
        shown = [{"file": n, "variables": list(map(asdict, rows))} for n, rows in files.items()]
        options.print_json({"files": shown})
        return
    for name, rows in files.items():
        before, after = (sum(getattr(r, key) for r in rows) for key in ("bytes", "estimated"))
        ratio = before / max(after, 1)
        print(f"{name}: {before} -> about {after} bytes ({ratio:.1f}x), nothing is written")
        table = [("variable", "role", "bound", "codec", "bytes", "estimated")]
        table += [
            (r.name + str(r.shape), r.role, r.bound, r.codec, str(r.bytes), str(r.estimated))
            for r in rows
        ]
        widths = [max(map(len, column)) for column in zip(*table, strict=True)]
        for line in table:
            cells = (c.ljust(w) for c, w in zip(line, widths, strict=True))
            print("  " + "  ".join(cells).rstrip())


def decompress(
    paths: Sources,
    share: Annotated[
        float | None,
        typer.Option(
            help="Decode this share of the bytes of files written with --progressive, e.g. 0.1: a "
            "coarse picture whose error is printed."
        ),
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Decompress files written by `compress`."""
    from scitoolkit.compression.files import decompress_file, preview_file
    from scitoolkit.compression.many import pairs_to_write

    pairs, folder = pairs_to_write(paths, compressing=False)
    if folder is not None:
        options.make_folder(folder)
    done: list[dict[str, Any]] = []
    for source, target in pairs:
        if share is not None:
            pictures = preview_file(source, target, share)
            done.append({"file": str(target), "variables": pictures})
            for one in [] if as_json else pictures:
                print(
                    f"{target}: {one['name']} from {one['bytes']} bytes, "
                    f"max error {one['max_error']:.4g}, RMSE {one['rmse']:.4g}"
                )
            continue
        names = decompress_file(source, target)
        done.append({"file": str(target), "variables": names})
        if not as_json:
            print(f"{target}: {', '.join(names)}")
    if as_json:
        options.print_json(done[0] if folder is None else {"files": done})


def verify(
    source: Annotated[
        Path, typer.Argument(metavar="FILE", help="A compressed file, or a folder of them.")
    ],
    original: Annotated[
        Path, typer.Argument(metavar="ORIGINAL", help="The original file, or folder of files.")
    ],
    report: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write a report with figures there.")
    ] = None,
    as_json: options.Json = False,
) -> None:
    """Compare a compressed file with its original; exit code 4 if an error bound is violated."""
    from scitoolkit.compression.check import verify_file
    from scitoolkit.compression.many import pairs_to_verify
    from scitoolkit.core.errors import ConfigError, NumericalError

    pairs = pairs_to_verify(source, original)
    if report is not None and len(pairs) > 1:
        raise ConfigError("--report with several files", where=str(source), allowed="one file")
    files: list[dict[str, Any]] = [
        {"file": str(one), "variables": verify_file(one, other, with_quality=True)}
        for one, other in pairs
    ]
    page = None
    if report is not None:
        from scitoolkit.compression.report import write_verification

        page = str(write_verification(*pairs[0], report))
    if as_json:
        extra = {} if page is None else {"report": page}
        options.print_json({**(files[0] if len(files) == 1 else {"files": files}), **extra})
    else:
        for one in files:
            if len(files) > 1:
                print(f"{one['file']}:")
            _print_records(one["variables"])
        if page:
            print(page)
    broken = [r["name"] for one in files for r in one["variables"] if not r["holds"]]
    if broken:
        raise NumericalError(
            f"error bound violated for {', '.join(broken)}",
            where=str(source),
            fix="compare with the file that was compressed; compress it again if it is that one",
        )


def _print_records(records: list[dict[str, Any]]) -> None:
    for r in records:
        print(
            f"  {r['name']}  max error {r['max_error']:.4g} of {r['allowed']:.4g}  "
            + (f"PSNR {r['psnr']:.2f} dB  " if r["psnr"] < math.inf else "")
            + ("ok" if r["holds"] else f"VIOLATED {r['problem']}".rstrip())
        )
        if line := "  ".join(f"{n} {r[k]:{f}}" for n, k, f in _QUALITY if r.get(k) is not None):
            print(f"    {line}")


def _sizes(name: str, done: list[dict[str, Any]]) -> str:
    before, after = (sum(one[key] for one in done) for key in ("bytes_in", "bytes_out"))
    return f"{name}: {before} -> {after} bytes ({before / after:.1f}x)"


def _line(r: dict[str, Any]) -> str:
    return (
        f"  {r['name']}{tuple(r['shape'])}  {r['ratio']:.1f}x  {r['bytes']} bytes  "
        f"{r['codec']} + {r['enhancer']}  max error {r['max_error']:.4g} of {r['error_bound']:.4g}"
    )


def _only_bound(bounds: dict[str, float | None]) -> Any:
    """Return the bound that was given; an error message has the form of the options."""
    from scitoolkit.compression import Bound
    from scitoolkit.core.errors import ConfigError

    options = [_option(mode) for mode, value in bounds.items() if value is not None]
    if len(options) != 1:
        raise ConfigError(
            f"{len(options)} bounds given ({', '.join(options) or 'none'})",
            allowed="exactly one of " + ", ".join(map(_option, bounds)),
            fix="--rel 1e-3",
        )
    return Bound.choose(**bounds)


def _progressive(codec: str) -> dict[str, Any]:
    """Return the setting of the codec that states the errors of a stream's first bytes."""
    from scitoolkit.core.errors import ConfigError

    if codec not in ("auto", "interpolation"):
        raise ConfigError(f"--progressive with --codec {codec}", allowed="auto or interpolation")
    return {"name": "interpolation", "progressive": True}


def _trained(enhancer: str) -> str:
    return "network" if enhancer == "auto" else enhancer


def _option(mode: str) -> str:
    return "--" + mode.replace("_", "-")


def _variable(text: str) -> tuple[str, Any]:
    from scitoolkit.compression import Bound
    from scitoolkit.core.errors import ConfigError

    name, _, bound = text.partition("=")
    if not bound:
        return name, None
    mode, _, value = bound.partition(":")
    try:
        return name, Bound.choose(**{mode: float(value)}) if mode else None
    except (TypeError, ValueError):
        raise ConfigError(
            f"--variable {text}", allowed="NAME or NAME=MODE:VALUE", fix="--variable t=rel:1e-4"
        ) from None
