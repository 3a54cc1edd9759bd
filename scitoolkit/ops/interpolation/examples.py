"""Examples of interpolation for the contract suite."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from scitoolkit.ops.codegen.examples import Example, Numbers
from scitoolkit.ops.interpolation.grid import EquidistantGrid, Placement


def examples(numbers: Numbers) -> Iterator[Example]:
    """Yield distances within and beyond the grid, and none."""
    grid = EquidistantGrid(2.0, 10)
    for edges, width in ((40, 6), (5, 17), (0, 3)):
        values = numbers.normal(11, width).to(torch.float64)
        coefficients = grid.coefficients(values, numbers.dtype)
        distances = numbers.normal(edges).abs()
        yield Example(
            f"{edges} edges, width {width}",
            "",
            (coefficients, distances),
            lambda run, a, d: run(a, Placement.build(grid, d)),
        )
