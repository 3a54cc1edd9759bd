"""Guard `plane_balance`: profiles of plane means from their transport equation."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.errors import ConfigError
from scitoolkit.emulation.guards.axes import Grid
from scitoolkit.emulation.guards.filters import along
from scitoolkit.emulation.guards.walls import chebyshev_axis

State = dict[str, Tensor]


class PlaneBalanceStep(nn.Module):
    """Set plane means q(z) by q_t = -<w q>_z + kappa q_zz, Crank-Nicolson over one step.

    If no mass crosses a plane, the flux does not depend on the mean, so that the new mean follows
    from the fluxes of both states without iteration. Means and fluxes are projected on (1 - s^2)
    times Chebyshev polynomials by least squares weighted with cell volumes.

    Args:
        grid: of the fields, with one dim between walls on Chebyshev-Gauss points.
        dim: the dim between the walls.
        carrier: the velocity along it, with mean 0 in every plane.
        diffusivity: {variable: kappa}.
        walls: {variable: (value at the first wall, at the last)}; 0 unless given.
        step: time between states.
        dropped: number of highest polynomials left out.
    """

    def __init__(
        self,
        grid: Grid,
        dim: str,
        carrier: str,
        diffusivity: Mapping[str, float],
        walls: Mapping[str, tuple[float, float]],
        step: float,
        dropped: int,
    ) -> None:
        super().__init__()
        axis = chebyshev_axis(grid, dim)
        self.carrier: str = carrier
        self.names: list[str] = list(diffusivity)
        self.dim: int = grid.position(dim)
        flat = [d for d in grid.sizes if d != dim]
        if walled := [d for d in flat if d not in grid.periodic]:
            raise ConfigError(
                f"planes across {dim!r} that end at walls along {', '.join(walled)}",
                where="guards",
                allowed="periodic planes",
                fix=f"boundary.{walled[0]}=circular if it is, or leave the guard out",
            )
        self.planes: list[int] = [grid.position(d) for d in flat]
        s, count = axis.relative, axis.size - dropped
        if count < 1:
            raise ConfigError(
                f"{axis.size} points along {dim!r} and {dropped} polynomials dropped",
                where="guards",
                allowed=f"dropped < {axis.size}",
            )
        scale = 2 / axis.length
        shape = [1] * (len(grid.sizes) + 1)
        shape[self.dim] = axis.size
        for i, (name, kappa) in enumerate(diffusivity.items()):
            hold, flux = _step_matrices(s, count, scale, kappa * step, step)
            low, high = walls.get(name, (0.0, 0.0))
            line = (0.5 * (low + high) + 0.5 * (high - low) * s).reshape(shape)
            for key, value in (("hold", hold), ("flux", flux), ("line", line)):
                tensor = torch.from_numpy(np.ascontiguousarray(value)).float()
                self.register_buffer(f"{key}{i}", tensor, persistent=False)

    def forward(self, new: State, old: State) -> State:
        """Return the new state with the plane means of the balance."""
        out = dict(new)
        for i, name in enumerate(self.names):
            hold, flux, line = (self.get_buffer(f"{key}{i}") for key in ("hold", "flux", "line"))
            fluxes = self._flux(old, name) + self._flux(new, name)
            # The polynomials vanish at the walls: they describe the mean without the line between
            # the values of the walls, which diffusion leaves alone.
            wanted = (
                line
                + along(self._mean(old[name]) - line, hold, self.dim)
                + along(fluxes, flux, self.dim)
            )
            out[name] = new[name] + (wanted - self._mean(new[name]))
        return out

    def _mean(self, value: Tensor) -> Tensor:
        return value.mean(self.planes, keepdim=True)

    def _flux(self, state: State, name: str) -> Tensor:
        return self._mean(state[self.carrier] * state[name])


def _basis(s: np.ndarray, count: int) -> np.ndarray:
    """Return (point, polynomial): polynomials that vanish at both walls."""
    return (1 - s**2)[:, None] * np.cos(np.arange(count) * np.arccos(s)[:, None])


def _step_matrices(
    s: np.ndarray, count: int, scale: float, diffusion: float, step: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the matrices from the old mean, and from the sum of both fluxes, to the new mean.

    Args:
        s: points in -1 ... 1.
        count: number of polynomials.
        scale: derivative of s by the coordinate.
        diffusion: diffusivity times step.
        step: time between the states.
    """
    # Symbols: V values, D' and D'' derivatives of the polynomials at the points, a coefficients of
    # the mean, k = kappa dt, F the sum of both fluxes. Crank-Nicolson over a step:
    # (V - k/2 D'') a_new = (V + k/2 D'') a_old - dt/2 D' F, each profile projected on polynomials.
    chebyshev = np.polynomial.chebyshev
    series = [chebyshev.chebmul([0.5, 0, -0.5], np.eye(count)[n]) for n in range(count)]
    value = _basis(s, count)
    first = np.stack([chebyshev.chebval(s, chebyshev.chebder(c)) for c in series], 1) * scale
    second = np.stack([chebyshev.chebval(s, chebyshev.chebder(c, 2)) for c in series], 1) * scale**2
    # Chebyshev-Gauss points are denser at the walls by 1 / sqrt(1 - s^2): rows are weighted by the
    # root of the volume of their cells, so that the least squares are those of the integral.
    root = (1 - s**2)[:, None] ** 0.25
    coefficients = np.linalg.pinv(value * root) * root.T
    implicit = np.linalg.pinv((value - 0.5 * diffusion * second) * root) * root.T
    advance = value @ implicit
    hold = advance @ (value + 0.5 * diffusion * second) @ coefficients
    return hold, -0.5 * step * advance @ first @ coefficients
