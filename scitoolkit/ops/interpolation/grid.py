"""Piecewise polynomials of degree 7 on an equidistant grid, and the placement of distances.

They replace the evaluation of a network of one scalar at every edge: in each interval the
polynomial interpolates the eight nearest nodes. Its error is of the eighth order in the step, below
the rounding of float32 for fine grids. It is linear in the values at the nodes, so that gradients
with respect to the network's weights are available.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.ops.codegen import check_tensor, is_eager

NUM_COEFFICIENTS = 8


@dataclass(frozen=True)
class EquidistantGrid:
    """Equidistant grid from 0 to `end`; interpolated functions are zero beyond the end.

    Example:
        >>> EquidistantGrid(5.0, 250).nodes().shape
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

    def nodes(self, device: torch.device | None = None) -> Tensor:
        """Return the nodes, shape (num_intervals + 1,), float64, made on a device."""
        count = self.num_intervals + 1
        return torch.arange(count, dtype=torch.float64, device=device) * self.step

    def coefficients(self, values: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the coefficients of the polynomials in the local coordinate of each interval.

        Args:
            values: values at the nodes, shape (num_intervals + 1, W), float64, because slopes are
                differences of neighbouring values.
            dtype: dtype of the result.

        Returns:
            Shape (num_intervals + 1, 8, W), lowest power first. The last entry, for distances
            beyond the end, is zero.

        Raises:
            DataError: values of another shape or dtype.
        """
        if values.shape[0] != self.num_intervals + 1 or values.dtype != torch.float64:
            raise DataError(
                f"expected values of shape ({self.num_intervals + 1}, W) in float64, got "
                f"{tuple(values.shape)} {values.dtype}"
            )
        matrices = _matrices_on if is_eager(values) else _copied_matrices
        first, middle, last = matrices(values.device)
        half = NUM_COEFFICIENTS // 2 - 1
        inner = values.unfold(0, NUM_COEFFICIENTS, 1).transpose(1, 2)  # (stencils, 8, W)
        parts = [first @ inner[0], middle @ inner, last @ inner[-1]]
        assert len(parts[0]) == len(parts[2]) == half
        coefficients = torch.cat([parts[0], parts[1], parts[2]]).to(dtype)
        return torch.cat([coefficients, coefficients.new_zeros(1, *coefficients.shape[1:])])


@functools.cache
def _matrices() -> tuple[Tensor, Tensor, Tensor]:
    """Return the matrices from eight values to coefficients: first, inner and last intervals.

    On the CPU; `_matrices_on` has the copy of each device.
    """
    with torch.inference_mode(False):  # such tensors could not be saved for a later gradient
        return _made_matrices()


def _made_matrices() -> tuple[Tensor, Tensor, Tensor]:
    inverses = []
    for interval in range(NUM_COEFFICIENTS - 1):
        nodes = torch.arange(NUM_COEFFICIENTS, dtype=torch.float64) - interval - 0.5
        inverses.append(torch.linalg.inv(torch.vander(nodes, increasing=True)))
    middle = NUM_COEFFICIENTS // 2 - 1
    return torch.stack(inverses[:middle]), inverses[middle], torch.stack(inverses[middle + 1 :])


def _copied_matrices(device: torch.device) -> list[Tensor]:
    with torch.inference_mode(False):
        return [matrix.to(device) for matrix in _matrices()]


# A copy to a GPU waits for it, and every step of training makes tables.
_matrices_on = functools.lru_cache(maxsize=16)(_copied_matrices)


@dataclass(frozen=True)
class Placement:
    """Distances located on a grid and sorted by interval, for all functions on the grid.

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
    def build(cls, grid: EquidistantGrid, distances: Tensor) -> Placement:
        """Locate distances on a grid.

        Args:
            grid: the grid.
            distances: shape (E,), not negative, float32 or float64, in the unit of the grid.

        Raises:
            DataError: distances of another shape or dtype.

        Example:
            >>> placed = Placement.build(EquidistantGrid(5.0, 50), torch.tensor([0.15, 7.0, 0.12]))
            >>> placed.interval.tolist(), placed.order.tolist()
            ([1, 50, 1], [0, 2, 1])
        """
        check_tensor("distances", distances, ("E",), distances)
        place = (distances / grid.step).clamp(max=grid.num_intervals)
        whole = place.detach().floor().nan_to_num(nan=grid.num_intervals).clamp(min=0)
        interval = whole.long()
        # searchsorted instead of bincount, whose output size torch.compile does not know.
        ordered, order = torch.sort(interval, stable=True)
        numbers = torch.arange(grid.num_intervals + 2, device=distances.device)
        ptr = torch.searchsorted(ordered, numbers)
        return cls(place - whole - 0.5, interval, ptr, order)
