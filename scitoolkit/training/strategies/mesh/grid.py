"""Numbers that products on a mesh of processes receive.

Symbols: a product of X (m, k) with W (n, k), of which the columns k are divided over p_i processes,
the rows n over p_o, each part of W over p_z, and the samples m over p_z and p_d. With
p(P) = (P - 1) / P, a rank receives in forward and backward pass
``3 k n / (p_i p_o) p(p_z) + 2 m / (p_z p_d) (n / p_o p(p_i) + k / p_i p(p_o))`` numbers, and
``2 k n / (p_i p_o p_z) p(p_d)`` for its gradients; without a gradient of X one gather and one
all-reduce less (after Singh, Sating and Bhatele 2023,
arXiv:2305.13525; an all-reduce is counted as a ring).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from scitoolkit.training.strategies.mesh.division import Division


@dataclass(frozen=True)
class DividedProduct:
    """One product of a network; several of one input, or with one sum, count as one.

    Attributes:
        division: of its matrix.
        inputs, outputs: columns k and rows n of the matrix.
        rows: rows of the input for one sample, such as patches.
        taps: numbers for each pair of input and output: cells of a convolution's kernel. Only
            matrices, with 1, are divided over z.
        inner: whether its input has a gradient; that of the first layer of a network has none.
    """

    division: Division
    inputs: int
    outputs: int
    rows: int
    taps: int = 1
    inner: bool = True

    @property
    def numbers(self) -> int:
        """Numbers of the whole matrix."""
        return self.inputs * self.outputs * self.taps


def ring(processes: int) -> float:
    """Return the share of a tensor that one pass around a ring moves.

    Example:
        >>> ring(1), ring(4)
        (0.0, 0.75)
    """
    return (processes - 1) / processes


def part_numbers(product: DividedProduct, grid: Sequence[int]) -> float:
    """Return the numbers of a matrix that a rank stores."""
    over_inputs, over_outputs = _processes(product, grid)
    over_z = grid[2] if product.taps == 1 else 1
    return product.numbers / (over_inputs * over_outputs * over_z)


def product_numbers(
    product: DividedProduct, samples: float, data: int, grid: Sequence[int]
) -> float:
    """Return the numbers that a rank receives for a product in a step.

    Args:
        product: its matrix.
        samples: samples of a step on all processes.
        data: shares of the batch.
        grid: sizes of the axes x, y, z.

    Example:
        >>> both = DividedProduct(Division(inputs="x", outputs="y"), 32, 48, rows=1)
        >>> product_numbers(both, 64, 1, (2, 2, 2))
        1856.0
    """
    over_inputs, over_outputs = _processes(product, grid)
    rows = product.rows * samples / (data * grid[2])
    part = product.numbers / (over_inputs * over_outputs)
    numbers = 2 * rows * product.outputs / over_outputs * ring(over_inputs)
    if product.inner:
        numbers += 2 * rows * product.inputs / over_inputs * ring(over_outputs)
    if product.taps == 1:
        numbers += (3 if product.inner else 2) * part * ring(grid[2])
        return numbers + 2 * part / grid[2] * ring(data)
    return numbers + 2 * part * ring(data * grid[2])


def _processes(product: DividedProduct, grid: Sequence[int]) -> tuple[int, int]:
    sizes: dict[str | None, int] = {None: 1, **dict(zip("xyz", grid, strict=True))}
    return sizes[product.division.inputs], sizes[product.division.outputs]
