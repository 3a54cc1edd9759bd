"""Guard `divergence_free`: projections of a velocity on divergence-free fields."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.errors import ConfigError
from scitoolkit.emulation.guards.axes import Axis, Grid
from scitoolkit.emulation.guards.filters import along
from scitoolkit.emulation.guards.walls import chebyshev_axis, weighted_projector

State = dict[str, Tensor]


def projection(grid: Grid, velocity: Mapping[str, str]) -> nn.Module:
    """Return the projection for a grid.

    Raises:
        ConfigError: the velocity lacks a component, or a grid with walls does not have two dims.
    """
    if set(velocity) != set(grid.sizes):
        raise ConfigError(
            f"a velocity along {', '.join(velocity)}",
            where="guards.velocity",
            allowed=f"a component along each of {', '.join(grid.sizes)}",
        )
    walled = [d for d in grid.sizes if d not in grid.periodic]
    if not walled:
        return PeriodicProjection(grid, velocity)
    if len(walled) > 1 or len(grid.sizes) != 2:
        raise ConfigError(
            f"walls at {', '.join(walled)} of {len(grid.sizes)} dims",
            where="guards",
            allowed="no walls, or two dims of which one has walls",
        )
    return WalledProjection(grid, velocity, walled[0])


class PeriodicProjection(nn.Module):
    """Projection u - k (k . u) / k^2 in Fourier space.

    Args:
        grid: of the fields, all dims periodic.
        velocity: {dim: velocity component along it}.
    """

    def __init__(self, grid: Grid, velocity: Mapping[str, str]) -> None:
        super().__init__()
        self.names: list[str] = [velocity[d] for d in grid.sizes]
        axes = [grid.axis(d) for d in grid.sizes]
        waves = [2 * np.pi * np.fft.fftfreq(a.size, a.length / a.size) for a in axes]
        waves[-1] = 2 * np.pi * np.fft.rfftfreq(axes[-1].size, axes[-1].length / axes[-1].size)
        for axis, k in zip(axes, waves, strict=True):
            # With an even number of points the derivative of the highest wave vanishes at them.
            k[np.abs(k) > np.pi / axis.length * (axis.size - 0.5)] = 0
        mesh = np.stack(np.meshgrid(*waves, indexing="ij"))
        unit = mesh / np.sqrt(np.maximum((mesh**2).sum(0), 1e-300))
        self.register_buffer("unit", torch.from_numpy(unit).float(), persistent=False)
        self.dims: list[int] = [2 + i for i in range(len(axes))]
        self.size: list[int] = [a.size for a in axes]

    def forward(self, new: State, old: State) -> State:
        """Return the new state with a divergence-free velocity."""
        unit = self.get_buffer("unit")
        waves = torch.fft.rfftn(torch.stack([new[n] for n in self.names], 1), dim=self.dims)
        waves = waves - unit * (waves * unit).sum(1, keepdim=True)
        fields = torch.fft.irfftn(waves, s=self.size, dim=self.dims)
        return {**new, **{n: fields[:, i] for i, n in enumerate(self.names)}}


class WalledProjection(nn.Module):
    """Projection on stream functions (1 - s^2)^2 times polynomials, one small matrix per wave.

    With psi = a cos kx + b sin kx, u = psi_z and w = -psi_x, the pairs (cosine of u, sine of w) and
    (sine of u, minus cosine of w) are both of the form [psi_z; k psi].

    Args:
        grid: of the fields, two dims.
        velocity: {dim: variable}.
        wall: the dim between walls.
    """

    def __init__(self, grid: Grid, velocity: Mapping[str, str], wall: str) -> None:
        super().__init__()
        (along_x,) = [d for d in grid.sizes if d != wall]
        self.u, self.w = velocity[along_x], velocity[wall]
        self.x, self.z = grid.position(along_x), grid.position(wall)
        axis, height = grid.axis(along_x), chebyshev_axis(grid, wall)
        matrix, _ = axis.transform()
        self.register_buffer("modes", torch.from_numpy(matrix).float(), persistent=False)
        stack = torch.from_numpy(_projectors(axis, height)).float()
        self.register_buffer("stack", stack, persistent=False)
        no_slip = torch.from_numpy(_no_slip(height)).float()
        self.register_buffer("no_slip", no_slip, persistent=False)
        self.pairs: int = (axis.size - 1) // 2

    def forward(self, new: State, old: State) -> State:
        """Return the new state with a divergence-free velocity that vanishes at the walls."""
        modes = self.get_buffer("modes")
        u, w = (self._to_modes(new[n], modes) for n in (self.u, self.w))
        u, w = self._projected(u, w)
        return {**new, self.u: self._to_points(u, modes), self.w: self._to_points(w, modes)}

    def _to_modes(self, value: Tensor, modes: Tensor) -> Tensor:
        """Return (B, mode, z) from (B, *grid)."""
        return along(value.movedim((self.x, self.z), (1, 2)), modes, 1)

    def _to_points(self, value: Tensor, modes: Tensor) -> Tensor:
        return along(value, modes.T, 1).movedim((1, 2), (self.x, self.z))

    def _projected(self, u: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        last = 1 + 2 * self.pairs
        u_cos, u_sin = u[:, 1:last:2], u[:, 2:last:2]
        w_cos, w_sin = w[:, 1:last:2], w[:, 2:last:2]
        both = torch.stack([torch.cat([u_cos, w_sin], -1), torch.cat([u_sin, -w_cos], -1)], -1)
        both = self.get_buffer("stack") @ both
        top, bottom = both.chunk(2, 2)
        new_u = torch.stack([top[..., 0], top[..., 1]], 2).flatten(1, 2)
        new_w = torch.stack([-bottom[..., 1], bottom[..., 0]], 2).flatten(1, 2)
        mean = u[:, :1] @ self.get_buffer("no_slip").T
        zero = torch.zeros_like(w[:, :1])
        # With an even number of points the highest wave has only a cosine.
        rest = torch.zeros_like(u[:, last:])
        return torch.cat([mean, new_u, rest], 1), torch.cat([zero, new_w, rest], 1)


def _projectors(axis: Axis, height: Axis) -> np.ndarray:
    """Return the projection matrices (wave, 2 nz, 2 nz) on [psi_z; k psi]."""
    s, n = height.relative, height.size
    # psi has degree n - 1 at most, as the polynomial of degree n vanishes at the points.
    angle, order = np.arccos(s)[:, None], np.arange(n - 4)
    t, slope = np.cos(order * angle), order * np.sin(order * angle) / np.sin(angle)
    bump = ((1 - s**2) ** 2)[:, None]
    psi = bump * t
    derivative = (-4 * s * (1 - s**2))[:, None] * t + bump * slope
    derivative *= 2 / height.length
    weights = np.tile(np.sqrt(1 - s**2), 2)
    waves = 2 * np.pi * np.arange(1, (axis.size - 1) // 2 + 1) / axis.length
    return np.stack(
        [weighted_projector(np.concatenate([derivative, k * psi]), weights) for k in waves]
    )


def _no_slip(height: Axis) -> np.ndarray:
    """Return the projection matrix of mean velocities on profiles that vanish at the walls."""
    s = height.relative
    basis = (1 - s**2)[:, None] * np.cos(np.arange(height.size - 2) * np.arccos(s)[:, None])
    return weighted_projector(basis, np.sqrt(1 - s**2))
