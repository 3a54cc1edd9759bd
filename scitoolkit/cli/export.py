"""`scitoolkit export`: a run or surrogate as one file that C++, Fortran or ONNX tools call."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from scitoolkit.cli import _options as options
from scitoolkit.core.log import setup_logging

NAME = "export"


def command(
    directory: Annotated[Path, typer.Argument(metavar="RUN", help="A run, or surrogates/NAME.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="model.pt2 or model.onnx.")],
    batch: Annotated[int, typer.Option("--batch", help="Samples of a call.")] = 1,
    as_json: options.Json = False,
    verbose: options.Verbose = False,
) -> None:
    """Write a model for solvers: compiled (.pt2) or ONNX, and check what was written."""
    from scitoolkit import api

    setup_logging(verbose=verbose)
    found = dict(api.export(directory, output, batch))
    if as_json:
        options.print_json(found)
        return
    for kind in ("inputs", "outputs"):
        for entry in found[kind]:
            dims = ", ".join(f"{d} {n}" for d, n in zip(entry["dims"], entry["shape"], strict=True))
            print(f"{kind[:-1]:<7} {entry['name']:<10} ({dims}) float32 {entry['units']}".rstrip())
    print(f"checked: differs from the surrogate by {found['largest_difference']:.1g}")
    print(found["path"])
