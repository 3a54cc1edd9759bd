"""`scitoolkit ops`: generated kernel sources and the capabilities of each operation."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from scitoolkit.cli import _options as options

if TYPE_CHECKING:
    from scitoolkit.ops.tensor_product import TensorProductSpec

app: typer.Typer = typer.Typer(
    help="Print generated kernels and the capabilities of operations.", cls=options.CommandGroup
)
FORM = "'IN1 * IN2 -> OUT', such as '32x0e + 32x1o * 0e + 1o -> 0e + 1o'"


class ProductKernel(StrEnum):
    """The generated C functions of a tensor product."""

    forward = "forward"
    backward = "backward"
    double = "double"


class RealType(StrEnum):
    """The C types of the kernels."""

    float = "float"
    double = "double"


@app.command("show")
def show(
    spec: Annotated[
        str,
        typer.Argument(
            metavar="[SPEC]",
            help="Irreps of a tensor product, 'IN1 * IN2 -> OUT'; with --operation the text of its "
            "spec, by default an example.",
        ),
    ] = "",
    operation: Annotated[
        str, typer.Option(help="Operation to print instead of a tensor product, such as spmm.")
    ] = "",
    kernel: Annotated[
        ProductKernel, typer.Option(help="Which kernel of a tensor product.")
    ] = ProductKernel.forward,
    real: Annotated[RealType, typer.Option(help="C type of the arithmetic.")] = RealType.float,
) -> None:
    """Print generated C: of a tensor product with all uvu paths into OUT, or of an operation."""
    if operation:
        import torch

        from scitoolkit.ops.codegen.sources import c_source

        dtype = torch.float64 if real is RealType.double else torch.float32
        print(c_source(operation, dtype, spec).rstrip())
        return
    from scitoolkit.ops.tensor_product import cpu

    name = "double_backward" if kernel is ProductKernel.double else kernel.value
    print(cpu.generate(_parsed(spec), name, real.value), end="")


@app.command("table")
def table() -> None:
    """Print the derivatives, devices, compilers and transforms that each operation supports."""
    from scitoolkit.ops.codegen.capabilities import capability_table

    print(capability_table(), end="")


def _parsed(text: str) -> TensorProductSpec:
    from scitoolkit.core.errors import ConfigError
    from scitoolkit.ops.tensor_product import TensorProductSpec

    inputs, arrow, wanted = text.partition("->")
    first, star, second = inputs.partition("*")
    if not (arrow and star):
        raise ConfigError(f"invalid SPEC {text!r}", allowed=f"{FORM}, or --operation NAME")
    return TensorProductSpec.channelwise(first.strip(), second.strip(), wanted.strip())
