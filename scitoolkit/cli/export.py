"""`scitoolkit export`: export of a run or surrogate to C, Fortran, LAMMPS, .pt2 or ONNX."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from scitoolkit.cli import _options as options
from scitoolkit.core.log import setup_logging

NAME = "export"


def command(
    directory: Annotated[
        Path,
        typer.Argument(
            metavar="RUN",
            help="A run directory, a folder of runs (the newest), or a surrogate's name.",
        ),
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="model.c, .so, .weights, .pt2, .onnx, or a folder."),
    ],
    options_given: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Options of the domain.")
    ] = None,
    batch: Annotated[int | None, typer.Option("--batch", help="Samples per call.")] = None,
    device: Annotated[
        str | None,
        typer.Option("--device", help=".so that computes by libtorch: cuda, or cpu."),
    ] = None,
    bits: Annotated[
        int | None,
        typer.Option("--bits", help="C: bits per weight, 8, 4 or 2; float32 by default."),
    ] = None,
    time_share: Annotated[
        float | None,
        typer.Option(
            "--time-share",
            help="C: lower the ranks of layers until they take this share of their time here.",
        ),
    ] = None,
    max_error: Annotated[
        float | None,
        typer.Option(
            "--max-error", help="Largest error of a compression, relative to an output's range."
        ),
    ] = None,
    fastest: Annotated[
        bool,
        typer.Option(
            "--fastest", help="C: try bits and ranks; write the fastest within --max-error."
        ),
    ] = False,
    search: Annotated[
        int | None,
        typer.Option(
            "--search",
            min=1,
            help="C: number of combinations of all options to try within --max-error.",
        ),
    ] = None,
    as_json: options.Json = False,
    verbose: options.Verbose = False,
) -> None:
    """Export a model for other programs (C, Fortran, .pt2, ONNX) and check it."""
    from scitoolkit import api

    setup_logging(verbose=verbose)
    named = {
        "batch": batch,
        "device": device if device is None else repr(device),  # text, also if empty
        "bits": bits,
        "time_share": time_share,
        "max_error": max_error,
        "fastest": fastest or None,
        "search": search,
    }
    settings = [*(options_given or ()), *(f"{k}={v}" for k, v in named.items() if v is not None)]
    record = dict(api.export(directory, output, settings))
    if as_json:
        options.print_json(record)
        return
    dtype = record["functions"][0]["dtype"] if "functions" in record else "float32"
    for kind in ("inputs", "outputs"):
        for entry in record.get(kind, ()):
            sizes = zip(entry["dims"], entry["shape"], strict=True)
            dims = ", ".join(f"{d} {n}" if n > 0 else d for d, n in sizes)
            print(f"{kind[:-1]:<7} {entry['name']:<10} ({dims}) {dtype} {entry['units']}".rstrip())
    for difference in record.get("differences", ()):
        print(difference["text"])
    for layer, (left, channels) in record.get("channels", {}).items():
        print(f"{layer}: {left} of {channels} channels kept")
    if "forms" in record:
        _print_forms(record)
    if "pareto" in record:
        _print_ranks(record)
    if record.get("dense"):
        print(f"unchanged layers: {', '.join(record['dense'])}")
    for text in record.get("undecided", {}).values():
        print(f"warning: {text}")
    if "libtorch" in record:
        print(f"computes on {record['device']} by libtorch of {record['libtorch']}")
    print(f"checked: largest difference from the surrogate {record['largest_difference']:.1g}")
    print(record["path"])


def _print_forms(report: Mapping[str, Any]) -> None:
    """Print all measured forms, and which one was written."""
    wide = max(16, *(len(row["name"]) for row in report["forms"]))
    print(f"{'form':<{wide}} {'us per call':>11} {'kB':>8} {'error/range':>12}")
    for row in report["forms"]:
        note = "" if row["worth"] else " (dominated by another form)"
        note = " <- written" if row["name"] == report["chosen"] else note
        print(
            f"{row['name']:<{wide}} {row['microseconds']:>11.4g} {row['bytes'] / 1e3:>8.4g} "
            f"{row['error']:>12.2g}{note}"
        )


def _print_ranks(report: Mapping[str, Any]) -> None:
    """Print the chosen ranks, and the predicted error for other time shares."""
    ranks = ", ".join(f"{name} {'x'.join(map(str, r))}" for name, r in report["ranks"].items())
    print(f"low rank: {ranks}")
    print(f"{'time share':>11} {'us per call':>11} {'kB of layers':>12} {'predicted error':>18}")
    for row in report["pareto"]:
        times = f"{row['time_share']:>11.2f} {row['microseconds']:>11.4g}"
        print(f"{times} {row['bytes'] / 1e3:>12.4g} {row['change']:>18.2g}")
    times = report["microseconds"]
    print(
        f"a call takes {times['measured']:.4g} us, predicted {times['predicted']:.4g}, "
        f"uncompressed {times['dense']:.4g}"
    )
