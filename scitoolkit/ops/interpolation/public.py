"""Public function of interpolation."""

from __future__ import annotations

from torch import Tensor

from scitoolkit.ops.codegen import GeneratedC, Operation, Triton, check_tensor
from scitoolkit.ops.interpolation import operators, reference, triton_source
from scitoolkit.ops.interpolation.grid import NUM_COEFFICIENTS, Placement

OPERATION = Operation(
    "interpolation",
    "piecewise polynomials of distances",
    reference.piecewise_polynomial,
    examples="scitoolkit.ops.interpolation.examples:examples",
)
GeneratedC.serve("interpolation", prepare=operators.kernels, source=operators.source)(
    operators.piecewise_polynomial
)
Triton.serve("interpolation", prepare=triton_source.gpu_kernels)(operators.gpu_piecewise_polynomial)


def piecewise_polynomial(
    coefficients: Tensor, place: Placement, *, backend: str = "auto"
) -> Tensor:
    """Piecewise polynomials at distances, twice differentiable in coefficients and distances.

    Bit-identical for any number of threads.

    Args:
        coefficients: shape (intervals + 1, 8, W), float32 or float64, from `Grid.coefficients`.
        place: the distances, from `Placement.build` on the same grid.
        backend: auto (the kernel if it can run, else the reference, with one warning), cpu,
            triton, reference, or the name of an installed kernel backend.

    Returns:
        Values, shape (E, W), in the dtype of the coefficients; zero beyond the end of the grid.

    Raises:
        DataError: coefficients of a grid with another number of intervals.
        ConfigError: an unknown backend.
        BackendError: the named backend cannot run.

    Example:
        >>> import torch
        >>> from scitoolkit.ops.interpolation import EquidistantGrid
        >>> grid = EquidistantGrid(2.0, 10)
        >>> a = grid.coefficients(grid.nodes()[:, None] ** 2, torch.float64)
        >>> place = Placement.build(grid, torch.tensor([1.5, 3.0], dtype=torch.float64))
        >>> [round(v, 12) for v in piecewise_polynomial(a, place).flatten().tolist()]
        [2.25, 0.0]
    """
    shape = (len(place.ptr) - 1, NUM_COEFFICIENTS, "W")
    check_tensor("coefficients", coefficients, shape, coefficients)
    return OPERATION.choose("", coefficients, backend)(coefficients, place)
