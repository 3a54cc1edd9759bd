"""`scitoolkit export`: a run or surrogate for C, C++, Fortran, LAMMPS or ONNX tools."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from scitoolkit.cli import _options as options
from scitoolkit.core.log import setup_logging

NAME = "export"


def command(
    directory: Annotated[Path, typer.Argument(metavar="RUN", help="A run, or surrogates/NAME.")],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="model.c, .so, .weights, .pt2, .onnx, or a folder."),
    ],
    options_given: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Options of the domain.")
    ] = None,
    batch: Annotated[int | None, typer.Option("--batch", help="Samples of a call.")] = None,
    bits: Annotated[
        int | None,
        typer.Option("--bits", help="Of the weights in C: 8, 4 or 2 instead of float32."),
    ] = None,
    time_share: Annotated[
        float | None,
        typer.Option("--time-share", help="Of layers' time in C: lower ranks, as measured here."),
    ] = None,
    max_error: Annotated[
        float | None,
        typer.Option("--max-error", help="Of a compression, as a share of an output's range."),
    ] = None,
    fastest: Annotated[
        bool,
        typer.Option("--fastest", help="Try bits and ranks in C; the fastest within --max-error."),
    ] = False,
    search: Annotated[
        int | None,
        typer.Option("--search", min=1, help="Combinations of all to try in C; with --max-error."),
    ] = None,
    as_json: options.Json = False,
    verbose: options.Verbose = False,
) -> None:
    """Write a model for solvers, and check it: C and Fortran, compiled (.pt2), or ONNX."""
    from scitoolkit import api

    setup_logging(verbose=verbose)
    named = {"batch": batch, "bits": bits, "time_share": time_share,
             "max_error": max_error, "fastest": fastest or None, "search": search}  # fmt: skip
    given = [*(options_given or ()), *(f"{k}={v}" for k, v in named.items() if v is not None)]
    found = dict(api.export(directory, output, given))
    if as_json:
        options.print_json(found)
        return
    for kind in ("inputs", "outputs"):
        for entry in found.get(kind, ()):
            sizes = zip(entry["dims"], entry["shape"], strict=True)
            dims = ", ".join(f"{d} {n}" if n > 0 else d for d, n in sizes)
            print(f"{kind[:-1]:<7} {entry['name']:<10} ({dims}) float32 {entry['units']}".rstrip())
    for told in found.get("differences", ()):
        print(told["text"])
    for layer, (left, channels) in found.get("channels", {}).items():
        print(f"{layer}: {left} of {channels} channels")
    if "forms" in found:
        _print_forms(found)
    if "pareto" in found:
        _print_ranks(found)
    if found.get("dense"):
        print(f"as before: {', '.join(found['dense'])}")
    print(f"checked: differs from the surrogate by {found['largest_difference']:.1g}")
    print(found["path"])


def _print_forms(found: Mapping[str, Any]) -> None:
    """Print all forms that were measured, and which one was written."""
    wide = max(16, *(len(row["name"]) for row in found["forms"]))
    print(f"{'form':<{wide}} {'a call, us':>11} {'kB':>8} {'change/range':>12}")
    for row in found["forms"]:
        note = "" if row["worth"] else " (another is better in all)"
        note = " <- written" if row["name"] == found["chosen"] else note
        print(f"{row['name']:<{wide}} {row['microseconds']:>11.4g} {row['bytes'] / 1e3:>8.4g} "
              f"{row['error']:>12.2g}{note}")  # fmt: skip


def _print_ranks(found: Mapping[str, Any]) -> None:
    """Print the ranks that were chosen, and what other shares of the time would change."""
    ranks = ", ".join(f"{name} {'x'.join(map(str, own))}" for name, own in found["ranks"].items())
    print(f"low rank: {ranks}")
    print(f"{'layers time':>11} {'a call, us':>11} {'kB of layers':>12} {'change (predicted)':>18}")
    for row in found["pareto"]:
        times = f"{row['time_share']:>11.2f} {row['microseconds']:>11.4g}"
        print(f"{times} {row['bytes'] / 1e3:>12.4g} {row['change']:>18.2g}")
    told = found["microseconds"]
    print(f"a call takes {told['measured']:.4g} us, predicted {told['predicted']:.4g}, "
          f"before {told['dense']:.4g}")  # fmt: skip
