"""Guard `wall_values`, and projections on polynomials with given wall values."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.errors import ConfigError
from scitoolkit.emulation.guards.axes import Axis, Grid
from scitoolkit.emulation.guards.filters import along

State = dict[str, Tensor]


class Walls(nn.Module):
    """Projection on a line plus (1 - s^2) times Chebyshev polynomials, weighted by cell volumes.

    Args:
        grid: of the fields.
        values: {variable: (value at the first wall, at the last)}.
        dim: the dim between the walls.
        dropped: number of highest polynomials left out.
    """

    matrix: Tensor

    def __init__(
        self, grid: Grid, values: Mapping[str, tuple[float, float]], dim: str, dropped: int
    ) -> None:
        super().__init__()
        axis = chebyshev_axis(grid, dim)
        s, count = axis.relative, axis.size - dropped
        if count < 1:
            raise ConfigError(
                f"{axis.size} points along {axis.dim!r} and {dropped} polynomials dropped",
                where="guards",
                allowed=f"dropped < {axis.size}",
            )
        basis = (1 - s**2)[:, None] * np.cos(np.arange(count) * np.arccos(s)[:, None])
        matrix = weighted_projector(basis, np.sqrt(1 - s**2))
        self.register_buffer("matrix", torch.from_numpy(matrix).float(), persistent=False)
        self.dim: int = grid.position(dim)
        shape = [1] * (len(grid.sizes) + 1)
        shape[self.dim] = axis.size
        self.names: list[str] = list(values)
        for i, (low, high) in enumerate(values.values()):
            line = 0.5 * (low + high) + 0.5 * (high - low) * s
            tensor = torch.from_numpy(line.reshape(shape)).float()
            self.register_buffer(f"line{i}", tensor, persistent=False)

    def forward(self, new: State, old: State) -> State:
        """Return the new state with the given wall values."""
        out = dict(new)
        for i, name in enumerate(self.names):
            line = self.get_buffer(f"line{i}")
            out[name] = line + along(new[name] - line, self.matrix, self.dim)
        return out


def chebyshev_axis(grid: Grid, dim: str) -> Axis:
    """Return a dim on Chebyshev-Gauss points.

    Raises:
        ConfigError: other points.
    """
    axis = grid.axis(dim)
    if axis.basis != "chebyshev":
        raise ConfigError(
            f"{dim!r} has even points{' and wraps' if axis.basis == 'fourier' else ''}",
            where="guards",
            allowed="Chebyshev-Gauss points between walls",
            fix="interpolate the data to such points, or leave the guard out",
        )
    return axis


def weighted_projector(basis: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the matrix of the weighted least-squares projection on the columns of a basis."""
    root = np.sqrt(weights)[:, None]
    q, _ = np.linalg.qr(basis * root)
    return (q / root) @ (q * root).T
