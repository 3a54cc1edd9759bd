"""Examples of node dropout for the contract suite."""

from __future__ import annotations

from collections.abc import Iterator

from scitoolkit.ops.codegen.examples import Example, Numbers


def examples(numbers: Numbers) -> Iterator[Example]:
    """Yield some rows in random order, and none."""
    for rows in (9, 0):
        index = numbers.integers(100, rows)
        yield Example(
            f"{rows} rows",
            "",
            (numbers.normal(rows, 5),),
            lambda run, x, i=index: run(x, i, 3, 1 << 22, 4 / 3),
        )
