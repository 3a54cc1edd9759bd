"""`scitoolkit export`: a run or surrogate for C, C++, Fortran, LAMMPS or ONNX tools."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scitoolkit.cli import _options as options
from scitoolkit.core.log import setup_logging

NAME = "export"


def command(
    directory: Annotated[Path, typer.Argument(metavar="RUN", help="A run, or surrogates/NAME.")],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="model.c, .so, .pt2, .onnx, or a folder."),
    ],
    options_given: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Options of the domain.")
    ] = None,
    batch: Annotated[int | None, typer.Option("--batch", help="Samples of a call.")] = None,
    bits: Annotated[
        int | None,
        typer.Option("--bits", help="Of the weights in C: 8, 4 or 2 instead of float32."),
    ] = None,
    max_error: Annotated[
        float | None,
        typer.Option("--max-error", help="Of few bits, as a share of an output's range."),
    ] = None,
    as_json: options.Json = False,
    verbose: options.Verbose = False,
) -> None:
    """Write a model for solvers, and check it: C and Fortran, compiled (.pt2), or ONNX."""
    from scitoolkit import api

    setup_logging(verbose=verbose)
    named = {"batch": batch, "bits": bits, "max_error": max_error}
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
    if found.get("dense"):
        print(f"float32 as before: {', '.join(found['dense'])}")
    print(f"checked: differs from the surrogate by {found['largest_difference']:.1g}")
    print(found["path"])
