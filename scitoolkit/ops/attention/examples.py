"""Examples of graph attention for the contract suite."""

from __future__ import annotations

from collections.abc import Iterator

from scitoolkit.ops.codegen.examples import Example, Numbers
from scitoolkit.ops.spmm.matrix import SparseMatrix


def examples(numbers: Numbers) -> Iterator[Example]:
    """Yield rows with more nonzeros than a block, odd widths, large scores, an empty pattern."""
    for nonzeros, heads, width, scale in ((90, 2, 8, 1), (300, 3, 5, 40), (0, 1, 4, 1)):
        row, column = numbers.integers(9, 2, nonzeros)
        pattern = SparseMatrix.from_coo(row, column, None, shape=(9, 10))
        tensors = (
            scale * numbers.normal(9, heads),
            scale * numbers.normal(10, heads),
            numbers.normal(10, heads, width),
        )
        yield Example(
            f"{nonzeros} nonzeros, {heads} heads of {width}",
            f"{heads}x{width}",
            tensors,
            lambda run, left, right, x, m=pattern: run(m, left, right, x, 0.2),
        )


def additive_examples(numbers: Numbers) -> Iterator[Example]:
    """Yield the same cases for additive scores, with more rows than a task."""
    for nonzeros, heads, width, scale in ((90, 2, 8, 1), (600, 3, 5, 9), (0, 1, 4, 1)):
        row = numbers.integers(70, nonzeros)
        pattern = SparseMatrix.from_coo(row, numbers.integers(10, nonzeros), None, shape=(70, 10))
        tensors = (
            scale * numbers.normal(70, heads, width),
            numbers.normal(10, heads, width),
            numbers.normal(heads, width),
        )
        yield Example(
            f"{nonzeros} nonzeros, {heads} heads of {width}",
            f"{heads}x{width}",
            tensors,
            lambda run, left, x, vector, m=pattern: run(m, left, x, vector, 0.2),
        )
