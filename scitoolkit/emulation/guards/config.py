"""The guards that a configuration can name, each a config section that builds itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from scitoolkit.emulation.guards.base import Frames, GuardConfig

if TYPE_CHECKING:
    from torch import nn

    from scitoolkit.emulation.guards.axes import Grid


class SpectralFilter(GuardConfig):
    """Damps the smallest scales: exp(-strength (k / K)^order) along each dim.

    Attributes:
        order: high orders act on the last waves alone.
        strength: 36 leaves rounding errors of the last wave.
        dims: all unless given.
        names: variables; all unless given.
    """

    name: Literal["spectral_filter"] = "spectral_filter"
    tolerance: ClassVar[float] = 0.5
    order: PositiveInt = 8
    strength: PositiveFloat = 36.0
    dims: list[str] | None = None
    names: list[str] | None = None

    def variables(self) -> Sequence[str]:
        """Return the names of the variables that it reads."""
        return self.names or ()

    def build(self, grid: Grid) -> nn.Module:
        """Return the module."""
        from scitoolkit.emulation.guards.filters import Filter

        return Filter(grid, self.order, self.strength, self.dims, self.names)


class DivergenceFree(GuardConfig):
    """Projects a velocity on fields without divergence, no-slip at walls.

    Periodic boxes of any number of dims; two dims where one has walls, on Chebyshev-Gauss points.

    Attributes:
        velocity: {dim: variable}.
    """

    name: Literal["divergence_free"] = "divergence_free"
    velocity: dict[str, str] = Field(min_length=2)

    def variables(self) -> Sequence[str]:
        """Return the names of the variables that it reads."""
        return list(self.velocity.values())

    def build(self, grid: Grid) -> nn.Module:
        """Return the module."""
        from scitoolkit.emulation.guards.divergence import projection

        return projection(grid, self.velocity)

    @classmethod
    def propose(cls, frames: Frames, grid: Grid) -> Sequence[GuardConfig]:
        """Return the projection of variables called u, v, w or `velocity_...`, where it holds."""
        from scitoolkit.emulation.guards.proposals import velocities

        return velocities(frames, grid, lambda velocity: cls(velocity=velocity))


class FixedMean(GuardConfig):
    """Holds means: to a number, or to that of the state before (`kept`) for conserved ones.

    Attributes:
        values: {variable: its mean, or `kept`}.
        over: dims of the mean; all, weighed by volumes, unless given. The mean over the periodic
            dims is the flux through each plane.
    """

    name: Literal["fixed_mean"] = "fixed_mean"
    values: dict[str, float | Literal["kept"]] = Field(min_length=1)
    over: list[str] | None = None

    def variables(self) -> Sequence[str]:
        """Return the names of the variables that it reads."""
        return list(self.values)

    def compared(self) -> Sequence[str]:
        """Return the names of the variables whose mean is kept."""
        return [name for name, value in self.values.items() if value == "kept"]

    def allows_mask(self) -> bool:
        """Return whether the mean is one over all cells: a line of them may hold no value."""
        return self.over is None

    def build(self, grid: Grid) -> nn.Module:
        """Return the module."""
        from scitoolkit.emulation.guards.means import Means

        return Means(grid, self.values, self.over)

    @classmethod
    def propose(cls, frames: Frames, grid: Grid) -> Sequence[GuardConfig]:
        """Return the means that are zero in every plane, or the same in all frames."""
        from scitoolkit.emulation.guards.proposals import means

        return [cls(values=values, over=over) for values, over in means(frames, grid)]


class WallValues(GuardConfig):
    """Holds a variable to given values at two walls: a line plus (1 - s^2) times polynomials.

    Attributes:
        values: {variable: (at the first wall, at the last)}.
        dim: from wall to wall, Chebyshev-Gauss points.
        dropped: highest polynomials left out; points crowd at the walls and follow the others.
    """

    name: Literal["wall_values"] = "wall_values"
    values: dict[str, tuple[float, float]] = Field(min_length=1)
    dim: str
    dropped: PositiveInt = 8

    def variables(self) -> Sequence[str]:
        """Return the names of the variables that it reads."""
        return list(self.values)

    def build(self, grid: Grid) -> nn.Module:
        """Return the module."""
        from scitoolkit.emulation.guards.walls import Walls

        return Walls(grid, self.values, self.dim, self.dropped)

    @classmethod
    def propose(cls, frames: Frames, grid: Grid) -> Sequence[GuardConfig]:
        """Return the wall values that all frames extrapolate to."""
        from scitoolkit.emulation.guards.proposals import wall_values

        return [cls(values=values, dim=dim) for values, dim in wall_values(frames, grid)]


class ValueRange(GuardConfig):
    """Holds variables in a range, such as that of a maximum principle.

    Attributes:
        ranges: {variable: (lowest, highest)}.
    """

    name: Literal["value_range"] = "value_range"
    cellwise: ClassVar[bool] = True
    ranges: dict[str, tuple[float, float]] = Field(min_length=1)

    def variables(self) -> Sequence[str]:
        """Return the names of the variables that it reads."""
        return list(self.ranges)

    def allows_mask(self) -> bool:
        """Return that a range holds cell by cell."""
        return True

    def build(self, grid: Grid) -> nn.Module:
        """Return the module."""
        from scitoolkit.emulation.guards.means import Range

        return Range(self.ranges)

    @classmethod
    def propose(cls, frames: Frames, grid: Grid) -> Sequence[GuardConfig]:
        """Return the ranges of the frames, widened by a half of their width."""
        from scitoolkit.emulation.guards.proposals import ranges

        found = ranges(frames)
        return [cls(ranges=found)] if found else []


class PressureEquation(GuardConfig):
    """Computes the pressure of an incompressible flow from its Poisson equation.

    lap p = div f - sum_ij d_i d_j (u_i u_j); at the walls dp/dn balances f and the viscous term.
    One periodic dim and one between walls, on Chebyshev-Gauss points.

    Attributes:
        variable: the pressure; its volume mean is 0.
        velocity: {dim: variable}.
        force: {dim: variable that accelerates along it}, such as a buoyancy.
        viscosity: kinematic.
    """

    name: Literal["pressure_equation"] = "pressure_equation"
    variable: str = "p"
    velocity: dict[str, str] = Field(min_length=2, max_length=2)
    force: dict[str, str] = Field(default_factory=dict)
    viscosity: PositiveFloat

    def variables(self) -> Sequence[str]:
        """Return the names of the variables that it reads."""
        return [*self.velocity.values(), *self.force.values()]

    def determined(self) -> Sequence[str]:
        """Return the names of the variables that it computes from others."""
        return [self.variable]

    def build(self, grid: Grid) -> nn.Module:
        """Return the module."""
        from scitoolkit.emulation.guards.pressure import Pressure

        return Pressure(grid, self.variable, self.velocity, self.force, self.viscosity)


class PlaneBalance(GuardConfig):
    """Holds the means over planes between two walls to their balance of fluxes and diffusion.

    q_t = -(w q)_z + kappa q_zz for the mean of q over the periodic dims, Crank-Nicolson over a
    step: exact but for how fluxes curve within it. For flows without a mean through the planes
    (`fixed_mean` over the periodic dims before it), on Chebyshev-Gauss points. A mean wind that
    grows by what one step gets wrong, and a wrong heat flux, are what it prevents.

    Attributes:
        dim: from wall to wall.
        carrier: the velocity along it.
        diffusivity: {variable: its diffusivity}, such as {u: viscosity}.
        walls: {variable: (at the first wall, at the last)}; 0 where not given.
        step: time from a state to the next, in the units of the diffusivity.
        dropped: highest polynomials left out; points crowd at the walls and follow the others.
    """

    name: Literal["plane_balance"] = "plane_balance"
    # Measured on datasets/rayleigh_benard and on flows of workflows/convection, steps of 0.25: with
    # the right coefficients u changes by at most 0.011 and b by 0.015, with three times the
    # viscosity u by 0.046 or more, with a wrong step by 0.087 or more.
    tolerance: ClassVar[float] = 0.03
    timed: ClassVar[bool] = True
    dim: str
    carrier: str
    diffusivity: dict[str, PositiveFloat] = Field(min_length=1)
    walls: dict[str, tuple[float, float]] = Field(default_factory=dict)
    step: PositiveFloat
    dropped: PositiveInt = 8

    @model_validator(mode="after")
    def _known_walls(self) -> PlaneBalance:
        if unknown := set(self.walls) - set(self.diffusivity):
            raise ValueError(f"walls names {sorted(unknown)}, which has no diffusivity")
        return self

    def variables(self) -> Sequence[str]:
        """Return the names of the variables that it reads."""
        return [self.carrier, *self.diffusivity]

    def compared(self) -> Sequence[str]:
        """Return the same names: fluxes and means of both states balance."""
        return self.variables()

    def build(self, grid: Grid) -> nn.Module:
        """Return the module."""
        from scitoolkit.emulation.guards import balance

        return balance.PlaneBalance(
            grid, self.dim, self.carrier, self.diffusivity, self.walls, self.step, self.dropped
        )
