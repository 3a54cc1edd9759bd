"""Reference piecewise polynomials in plain torch: readable, differentiable to any order, slow."""

from __future__ import annotations

from torch import Tensor

from scitoolkit.ops.interpolation.grid import NUM_COEFFICIENTS, Placement


def piecewise_polynomial(coefficients: Tensor, place: Placement) -> Tensor:
    """Return the values at each distance, shape (E, W).

    Args:
        coefficients: shape (intervals + 1, 8, W), from `Grid.coefficients`.
        place: the distances.
    """
    rows = coefficients[place.interval]
    local = place.local.to(coefficients.dtype)[:, None]
    out = rows[:, NUM_COEFFICIENTS - 1]
    for power in reversed(range(NUM_COEFFICIENTS - 1)):
        out = out * local + rows[:, power]
    return out
