"""Examples of the sparse products for the contract suite."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

from scitoolkit.ops.codegen.examples import Example, Numbers
from scitoolkit.ops.spmm.matrix import SparseMatrix


def _matrix(numbers: Numbers, nonzeros: int) -> tuple[SparseMatrix, Tensor]:
    row, column = numbers.integers(12, 2, nonzeros)
    pattern = SparseMatrix.from_coo(row, column, None, shape=(12, 12))
    return pattern, numbers.normal(nonzeros)


def spmm_examples(numbers: Numbers) -> Iterator[Example]:
    """Yield products of several widths, with an empty pattern, and without values."""
    for nonzeros, width in ((50, 7), (50, 32), (0, 3)):
        pattern, value = _matrix(numbers, nonzeros)
        x = numbers.normal(12, width)
        yield Example(
            f"{nonzeros} nonzeros, width {width}",
            str(width),
            (value, x),
            lambda run, value, x, m=pattern: run(m.with_value(value), x),
        )
    yield Example("ones", "3", (numbers.normal(12, 3),), lambda run, x, m=pattern: run(m, x))


def sddmm_examples(numbers: Numbers) -> Iterator[Example]:
    """Yield sampled products of several widths, and with an empty pattern."""
    for nonzeros, width in ((50, 7), (50, 32), (0, 3)):
        pattern, _ = _matrix(numbers, nonzeros)
        sides = (numbers.normal(12, width), numbers.normal(12, width))
        yield Example(
            f"{nonzeros} nonzeros, width {width}",
            str(width),
            sides,
            lambda run, left, right, m=pattern: run(m, left, right),
        )
