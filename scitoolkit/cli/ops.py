"""`scitoolkit ops`: generated kernel sources and the capabilities of each operation."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from scitoolkit.cli import _options as options

if TYPE_CHECKING:
    from scitoolkit.ops.tensor_product import TensorProductSpec

app = typer.Typer(
    help="Print generated kernels and the capabilities of operations.", cls=options.Group
)
FORM = "'IN1 * IN2 -> OUT', such as '32x0e + 32x1o * 0e + 1o -> 0e + 1o'"


class Kernel(StrEnum):
    """The generated C functions of a tensor product."""

    forward = "forward"
    backward = "backward"
    double = "double"


class Real(StrEnum):
    """The C types of the kernels."""

    float = "float"
    double = "double"


@app.command("show")
def show(
    spec: Annotated[
        str, typer.Argument(metavar="SPEC", help="Irreps of a tensor product: 'IN1 * IN2 -> OUT'.")
    ],
    kernel: Annotated[Kernel, typer.Option(help="Kernel to print.")] = Kernel.forward,
    real: Annotated[Real, typer.Option(help="Floating-point type.")] = Real.float,
) -> None:
    """Print the generated C code of a tensor product with all uvu paths into OUT."""
    from scitoolkit.ops.tensor_product import cpu

    name = "double_backward" if kernel is Kernel.double else kernel.value
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
        raise ConfigError(f"invalid SPEC {text!r}", allowed=FORM)
    return TensorProductSpec.channelwise(first.strip(), second.strip(), wanted.strip())
