"""Configuration sections of the built-in guards."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from scitoolkit.emulation.guards.base import Frames, GuardConfig

if TYPE_CHECKING:
    from torch import nn

    from scitoolkit.emulation.guards.axes import Grid


class SpectralFilter(GuardConfig):
    """Damp the smallest scales by exp(-strength (k / K)^order) along each dim.

    Attributes:
        order: of the exponent; high orders act on the highest modes only.
        strength: damping of the highest mode; 36 reduces it to rounding errors.
        dims: dims to filter; all unless given.
        names: variables to filter; all unless given.
    """

    name: Literal["spectral_filter"] = "spectral_filter"
    tolerance: ClassVar[float] = 0.5
    order: PositiveInt = 8
    strength: PositiveFloat = 36.0
    dims: list[str] | None = None
    names: list[str] | None = None

    def variables(self) -> Sequence[str]:
        """Return the names of the variables that the guard reads."""
        return self.names or ()

    def build(self, grid: Grid) -> nn.Module:
        """Return the module."""
        from scitoolkit.emulation.guards.filters import Filter

        return Filter(grid, self.order, self.strength, self.dims, self.names)


class DivergenceFree(GuardConfig):
    """Project a velocity on divergence-free fields, with no slip at walls.

    Supports periodic boxes in any number of dims, and two dims of which one has walls, on
    Chebyshev-Gauss points.

    Attributes:
        velocity: {dim: velocity component along it}.
    """

    name: Literal["divergence_free"] = "divergence_free"
    velocity: dict[str, str] = Field(min_length=2)

    def variables(self) -> Sequence[str]:
        """Return the names of the variables that the guard reads."""
        return list(self.velocity.values())

    def build(self, grid: Grid) -> nn.Module:
        """Return the module."""
        from scitoolkit.emulation.guards.divergence import projection

        return projection(grid, self.velocity)

    @classmethod
    def propose(cls, frames: Frames, grid: Grid) -> Sequence[GuardConfig]:
        """Return the projection of variables named u, v, w or `velocity_...` if they satisfy it."""
        from scitoolkit.emulation.guards.proposals import velocities

        return velocities(frames, grid, lambda velocity: cls(velocity=velocity))


class FixedMean(GuardConfig):
    """Set means to a number, or to the mean of the state before the step (`kept`).

    Attributes:
        values: {variable: its mean, or `kept` for conserved means}.
        over: dims of the mean, weighted by volumes; all unless given. The mean of a velocity over
            the periodic dims is the flux through each plane.
    """

    name: Literal["fixed_mean"] = "fixed_mean"
    values: dict[str, float | Literal["kept"]] = Field(min_length=1)
    over: list[str] | None = None

    def variables(self) -> Sequence[str]:
        """Return the names of the variables that the guard reads."""
        return list(self.values)

    def compared(self) -> Sequence[str]:
        """Return the names of the variables whose mean is conserved."""
        return [name for name, value in self.values.items() if value == "kept"]

    def allows_mask(self) -> bool:
        """Return whether the mean is over all cells, as single lines may have no valid cell."""
        return self.over is None

    def build(self, grid: Grid) -> nn.Module:
        """Return the module."""
        from scitoolkit.emulation.guards.means import Means

        return Means(grid, self.values, self.over)

    @classmethod
    def propose(cls, frames: Frames, grid: Grid) -> Sequence[GuardConfig]:
        """Return the means that are zero in every plane, or constant over all frames."""
        from scitoolkit.emulation.guards.proposals import means

        return [cls(values=values, over=over) for values, over in means(frames, grid)]


class WallValues(GuardConfig):
    """Enforce values at two walls by a projection on a line plus (1 - s^2) times polynomials.

    Attributes:
        values: {variable: (value at the first wall, at the last)}.
        dim: the dim between the walls, on Chebyshev-Gauss points.
        dropped: number of highest polynomials left out.
    """

    name: Literal["wall_values"] = "wall_values"
    values: dict[str, tuple[float, float]] = Field(min_length=1)
    dim: str
    dropped: PositiveInt = 8

    def variables(self) -> Sequence[str]:
        """Return the names of the variables that the guard reads."""
        return list(self.values)

    def build(self, grid: Grid) -> nn.Module:
        """Return the module."""
        from scitoolkit.emulation.guards.walls import Walls

        return Walls(grid, self.values, self.dim, self.dropped)

    @classmethod
    def propose(cls, frames: Frames, grid: Grid) -> Sequence[GuardConfig]:
        """Return the wall values to which all frames extrapolate."""
        from scitoolkit.emulation.guards.proposals import wall_values

        return [cls(values=values, dim=dim) for values, dim in wall_values(frames, grid)]


class ValueRange(GuardConfig):
    """Clamp variables to a range, such as that of a maximum principle.

    Attributes:
        ranges: {variable: (lowest, highest)}.
    """

    name: Literal["value_range"] = "value_range"
    cellwise: ClassVar[bool] = True
    ranges: dict[str, tuple[float, float]] = Field(min_length=1)

    def variables(self) -> Sequence[str]:
        """Return the names of the variables that the guard reads."""
        return list(self.ranges)

    def allows_mask(self) -> bool:
        """Return True, as cells are clamped independently."""
        return True

    def build(self, grid: Grid) -> nn.Module:
        """Return the module."""
        from scitoolkit.emulation.guards.means import Range

        return Range(self.ranges)

    @classmethod
    def propose(cls, frames: Frames, grid: Grid) -> Sequence[GuardConfig]:
        """Return the ranges of the frames, widened by half their width."""
        from scitoolkit.emulation.guards.proposals import ranges

        proposed = ranges(frames)
        return [cls(ranges=proposed)] if proposed else []


class PressureEquation(GuardConfig):
    """Compute the pressure of an incompressible flow from its Poisson equation.

    lap p = div f - sum_ij d_i d_j (u_i u_j); at the walls dp/dn balances f and the viscous term.
    One periodic dim and one between walls, on Chebyshev-Gauss points.

    Attributes:
        variable: the pressure; its volume mean is 0.
        velocity: {dim: velocity component along it}.
        force: {dim: variable that is an acceleration along it}, such as a buoyancy.
        viscosity: kinematic, in the units of the data.
    """

    name: Literal["pressure_equation"] = "pressure_equation"
    variable: str = "p"
    velocity: dict[str, str] = Field(min_length=2, max_length=2)
    force: dict[str, str] = Field(default_factory=dict)
    viscosity: PositiveFloat

    def variables(self) -> Sequence[str]:
        """Return the names of the variables that the guard reads."""
        return [*self.velocity.values(), *self.force.values()]

    def determined(self) -> Sequence[str]:
        """Return the names of the variables that the guard computes from others."""
        return [self.variable]

    def build(self, grid: Grid) -> nn.Module:
        """Return the module."""
        from scitoolkit.emulation.guards.pressure import Pressure

        return Pressure(grid, self.variable, self.velocity, self.force, self.viscosity)


class PlaneBalance(GuardConfig):
    """Set means over planes between two walls by their balance of fluxes and diffusion.

    Solves q_t = -(w q)_z + kappa q_zz for the mean of q over the periodic dims by Crank-Nicolson
    over one step, of second order in the step. For flows without mean velocity through the planes
    (precede it by `fixed_mean` over the periodic dims), on Chebyshev-Gauss points. It prevents a
    mean wind that grows by the errors of single steps, and a wrong heat flux.

    Attributes:
        dim: the dim between the walls.
        carrier: the velocity along it.
        diffusivity: {variable: its diffusivity}, such as {u: viscosity}.
        walls: {variable: (value at the first wall, at the last)}; 0 unless given.
        step: time between states, in the units of the diffusivity.
        dropped: number of highest polynomials left out.
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
        """Return the names of the variables that the guard reads."""
        return [self.carrier, *self.diffusivity]

    def compared(self) -> Sequence[str]:
        """Return the same names, as the balance needs both states."""
        return self.variables()

    def build(self, grid: Grid) -> nn.Module:
        """Return the module."""
        from scitoolkit.emulation.guards import balance

        return balance.PlaneBalanceStep(
            grid, self.dim, self.carrier, self.diffusivity, self.walls, self.step, self.dropped
        )
