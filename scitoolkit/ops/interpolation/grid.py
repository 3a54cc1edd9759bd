"""Where distances lie on a grid, and the polynomials through the values at its nodes.

A network of one scalar need not run for every edge: between neighbouring nodes a polynomial of
degree 7 through the eight nearest values is as good as the network in float32 (its error falls
with the eighth power of the step), and linear in those values, so gradients with respect to the
network's weights pass through it.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.ops.codegen import check_tensor

NUM_COEFFICIENTS = 8


@dataclass(frozen=True)
class Grid:
    """Equal intervals from 0 to `end`; beyond it every interpolated function is zero.

    Example:
        >>> Grid(5.0, 250).nodes().shape
        torch.Size([251])
    """

    end: float
    num_intervals: int

    def __post_init__(self) -> None:
        if not self.end > 0 or self.num_intervals < NUM_COEFFICIENTS - 1:
            raise ConfigError(
                f"a grid of {self.num_intervals} intervals up to {self.end}",
                allowed=f"a positive end, at least {NUM_COEFFICIENTS - 1} intervals",
            )

    @property
    def step(self) -> float:
        """Length of an interval."""
        return self.end / self.num_intervals

    def nodes(self) -> Tensor:
        """Return the ends of the intervals, shape (num_intervals + 1,), float64."""
        return torch.arange(self.num_intervals + 1, dtype=torch.float64) * self.step

    def coefficients(self, values: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the polynomials' coefficients in the local coordinate of each interval.

        Args:
            values: at the nodes, shape (num_intervals + 1, W), float64: differences of
                neighbouring values carry the slopes.
            dtype: of the result.

        Returns:
            Shape (num_intervals + 1, 8, W), lowest power first; the last, for what lies beyond
            the end, is zero.
        """
        if values.shape[0] != self.num_intervals + 1 or values.dtype != torch.float64:
            raise DataError(
                f"expected values of shape ({self.num_intervals + 1}, W) in float64, got "
                f"{tuple(values.shape)} {values.dtype}"
            )
        first, middle, last = _matrices()
        half = NUM_COEFFICIENTS // 2 - 1
        inner = values.unfold(0, NUM_COEFFICIENTS, 1).transpose(1, 2)  # (stencils, 8, W)
        parts = [first @ inner[0], middle @ inner, last @ inner[-1]]
        assert len(parts[0]) == len(parts[2]) == half
        found = torch.cat([parts[0], parts[1], parts[2]]).to(dtype)
        return torch.cat([found, found.new_zeros(1, *found.shape[1:])])


@functools.cache
def _matrices() -> tuple[Tensor, Tensor, Tensor]:
    """Matrices from eight values to coefficients: intervals before, in and after the middle."""
    found = []
    for interval in range(NUM_COEFFICIENTS - 1):
        nodes = torch.arange(NUM_COEFFICIENTS, dtype=torch.float64) - interval - 0.5
        found.append(torch.linalg.inv(torch.vander(nodes, increasing=True)))
    middle = NUM_COEFFICIENTS // 2 - 1
    return torch.stack(found[:middle]), found[middle], torch.stack(found[middle + 1 :])


@dataclass(frozen=True)
class Placement:
    """Distances on a grid, sorted by interval; one for all functions on it.

    Attributes:
        local: coordinate within the interval, -0.5..0.5, shape (E,), differentiable.
        interval: shape (E,), int64.
        ptr, order: edges of each interval, shapes (num_intervals + 2,) and (E,), int64.
    """

    local: Tensor
    interval: Tensor
    ptr: Tensor
    order: Tensor

    @classmethod
    def build(cls, grid: Grid, distances: Tensor) -> Placement:
        """Locate distances on a grid.

        Args:
            grid: the grid.
            distances: shape (E,), not negative, float32 or float64, in the unit of the grid.

        Raises:
            DataError: distances of another shape or dtype.

        Example:
            >>> placed = Placement.build(Grid(5.0, 50), torch.tensor([0.15, 7.0, 0.12]))
            >>> placed.interval.tolist(), placed.order.tolist()
            ([1, 50, 1], [0, 2, 1])
        """
        check_tensor("distances", distances, ("E",), distances)
        place = (distances / grid.step).clamp(max=grid.num_intervals)
        whole = place.detach().floor().nan_to_num(nan=grid.num_intervals).clamp(min=0)
        interval = whole.long()
        # Not a count of each interval, whose size torch.compile does not know.
        ordered, order = torch.sort(interval, stable=True)
        numbers = torch.arange(grid.num_intervals + 2, device=distances.device)
        ptr = torch.searchsorted(ordered, numbers)
        return cls(place - whole - 0.5, interval, ptr, order)
