"""Guard `pressure_equation`: pressure of an incompressible flow between two walls."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.errors import ConfigError
from scitoolkit.emulation.guards.axes import Axis, Grid
from scitoolkit.emulation.guards.filters import along
from scitoolkit.emulation.guards.walls import chebyshev_axis

State = dict[str, Tensor]


class Pressure(nn.Module):
    """Poisson solver with Neumann walls: Fourier along x, collocation across, in float64.

    Fields are interpolated to Gauss-Lobatto nodes, which include the walls, and back. The lower two
    thirds of the waves are solved for, so that products do not alias into them.

    Args:
        grid: of the fields, one periodic dim and one between walls.
        variable: the pressure.
        velocity: {dim: velocity component along it}.
        force: {dim: variable that is an acceleration along it}.
        viscosity: kinematic, in the units of the data.
    """

    def __init__(
        self,
        grid: Grid,
        variable: str,
        velocity: Mapping[str, str],
        force: Mapping[str, str],
        viscosity: float,
    ) -> None:
        super().__init__()
        walled = [d for d in velocity if d not in grid.periodic]
        if len(walled) != 1 or len(grid.sizes) != 2 or set(velocity) != set(grid.sizes):
            raise ConfigError(
                f"a velocity along {', '.join(velocity)} on {', '.join(grid.sizes)}, walls "
                f"at {', '.join(walled) or 'none'}",
                where="guards",
                allowed="one periodic dim and one between walls",
            )
        (wall,) = walled
        (flat,) = [d for d in grid.sizes if d != wall]
        self.variable: str = variable
        self.viscosity: float = viscosity
        self.u, self.w = velocity[flat], velocity[wall]
        self.force_x, self.force_z = force.get(flat), force.get(wall)
        self.x, self.z = grid.position(flat), grid.position(wall)
        for name, matrix in _matrices(grid.axis(flat), chebyshev_axis(grid, wall)).items():
            self.register_buffer(name, torch.from_numpy(matrix), persistent=False)

    def forward(self, new: State, old: State) -> State:
        """Return the new state with its pressure."""
        p = self._pressure(new)
        shaped = p.movedim((1, 2), (self.x, self.z)).to(new[self.u].dtype)
        return {**new, self.variable: shaped}

    def _nodes(self, value: Tensor) -> Tensor:
        """Interpolate a field to (B, x, node) float64."""
        value = value.movedim((self.x, self.z), (1, 2)).double()
        return value @ self.get_buffer("to_nodes").T

    def _pressure(self, state: State) -> Tensor:
        dx, dz = self.get_buffer("dx"), self.get_buffer("dz")
        u, w = self._nodes(state[self.u]), self._nodes(state[self.w])

        def x(value: Tensor) -> Tensor:
            return along(value, dx, 1)

        def z(value: Tensor) -> Tensor:
            return value @ dz.T

        uw = u * w
        rhs = -(x(x(u * u) + 2 * z(uw)) + z(z(w * w)))
        slope = self.viscosity * z(z(w))
        if self.force_z is not None:
            force = self._nodes(state[self.force_z])
            rhs, slope = rhs + z(force), slope + force
        if self.force_x is not None:
            rhs = rhs + x(self._nodes(state[self.force_x]))
        wall = self.get_buffer("wall")
        rhs = rhs * (1 - wall) + slope * wall
        modes = along(rhs, self.get_buffer("modes"), 1)
        solved = (self.get_buffer("solve") @ modes.unsqueeze(-1)).squeeze(-1)
        return along(solved, self.get_buffer("modes").T, 1) @ self.get_buffer("to_points").T


def _matrices(axis: Axis, height: Axis) -> dict[str, np.ndarray]:
    """Return the matrices of the solver by name, float64."""
    n = height.size
    s = -np.cos(np.pi * np.arange(n + 1) / n)
    vander = np.polynomial.chebyshev.chebvander
    derivative = _derivative(s) * 2 / height.length
    full, _ = axis.transform()
    number = (np.arange(axis.size) + 1) // 2
    resolved = number <= (axis.size - 1) // 3  # a wave of exactly a third aliases
    modes, waves = full[resolved], 2 * np.pi * number[resolved] / axis.length
    solve = np.stack([_inverse(derivative, k, s) for k in waves])
    return {
        "to_nodes": vander(s, n - 1) @ np.linalg.inv(vander(height.relative, n - 1)),
        "to_points": vander(height.relative, n) @ np.linalg.inv(vander(s, n)),
        "dx": _periodic_derivative(axis),
        "dz": derivative,
        "modes": modes,
        "solve": solve,
        "wall": np.r_[1.0, np.zeros(n - 1), 1.0],
    }


def _derivative(s: np.ndarray) -> np.ndarray:
    """Return the derivative matrix on ascending Gauss-Lobatto nodes in -1 ... 1."""
    n = len(s) - 1
    c = np.r_[2.0, np.ones(n - 1), 2.0] * (-1.0) ** np.arange(n + 1)
    d = np.outer(c, 1 / c) / (s[:, None] - s[None, :] + np.eye(n + 1))
    return d - np.diag(d.sum(1))


def _periodic_derivative(axis: Axis) -> np.ndarray:
    """Return the derivative matrix of trigonometric interpolation on even points."""
    matrix, _ = axis.transform()
    slopes = np.zeros_like(matrix)
    for k in range(1, (axis.size - 1) // 2 + 1):
        wave = 2 * np.pi * k / axis.length
        slopes[2 * k - 1], slopes[2 * k] = -wave * matrix[2 * k], wave * matrix[2 * k - 1]
    return slopes.T @ matrix


def _inverse(derivative: np.ndarray, wave: float, s: np.ndarray) -> np.ndarray:
    """Return the inverse of p_zz - k^2 p = rhs, with wall slopes in the end rows of rhs."""
    n = len(s) - 1
    matrix = derivative @ derivative - wave**2 * np.eye(n + 1)
    matrix[[0, n]] = derivative[[0, n]]
    if wave > 0:
        return np.linalg.inv(matrix)
    # The mean profile is known up to a constant, and its slope at one wall follows from the rest:
    # bordered by the condition that its integral is 0.
    moments = np.zeros(n + 1)
    moments[::2] = 2 / (1 - np.arange(0, n + 1, 2) ** 2.0)
    weights = np.linalg.solve(np.polynomial.chebyshev.chebvander(s, n).T, moments)
    bordered = np.block([[matrix, np.ones((n + 1, 1))], [weights[None], np.zeros((1, 1))]])
    return np.linalg.inv(bordered)[: n + 1, : n + 1]
