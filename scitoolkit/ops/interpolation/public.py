"""Interpolated functions: arguments checked, then run by the backend that dispatch picks."""

from __future__ import annotations

from torch import Tensor

from scitoolkit.ops.codegen import GeneratedC, Operation, check_tensor
from scitoolkit.ops.interpolation import operators, reference
from scitoolkit.ops.interpolation.grid import NUM_COEFFICIENTS, Placement

OPERATION = Operation(
    "interpolation",
    "piecewise polynomials of distances",
    reference.piecewise_polynomial,
    examples="scitoolkit.ops.interpolation.examples:examples",
)
GeneratedC.serve("interpolation", prepare=operators.kernels)(operators.piecewise_polynomial)


def piecewise_polynomial(
    coefficients: Tensor, place: Placement, *, backend: str = "auto"
) -> Tensor:
    """Return interpolated functions at distances, twice differentiable in both.

    Deterministic for any number of threads.

    Args:
        coefficients: shape (intervals + 1, 8, W), float32 or float64, from `Grid.coefficients`.
        place: the distances, from `Placement.build` on the same grid.
        backend: auto (kernel if it can run, else the reference, with one warning), cpu, reference,
            or the name of an installed kernel backend.

    Returns:
        Values, shape (E, W), of the dtype of the coefficients; zero beyond the end of the grid.

    Raises:
        DataError: coefficients of another grid.
        BackendError: a backend is asked for that cannot run.

    Example:
        >>> import torch
        >>> from scitoolkit.ops.interpolation import Grid
        >>> grid = Grid(2.0, 10)
        >>> a = grid.coefficients(grid.nodes()[:, None] ** 2, torch.float64)
        >>> place = Placement.build(grid, torch.tensor([1.5, 3.0], dtype=torch.float64))
        >>> [round(v, 12) for v in piecewise_polynomial(a, place).flatten().tolist()]
        [2.25, 0.0]
    """
    shape = (len(place.ptr) - 1, NUM_COEFFICIENTS, "W")
    check_tensor("coefficients", coefficients, shape, coefficients)
    return OPERATION.choose("", coefficients, backend)(coefficients, place)
