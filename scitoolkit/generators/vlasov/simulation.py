"""Vlasov-Ampère and Vlasov-Poisson simulations in 1X1V and 1X2V: state, steps, moments, restart.

The field is along x. In 1X2V v is vx, and f depends on vy, without acceleration along it.

Units: time in inverse plasma frequencies, length in Debye lengths, v in thermal speeds of the
species whose charge, mass and density are 1; the permittivity is 1.

Example:
    >>> import numpy as np
    >>> k = 0.5
    >>> electrons = Species(lambda x, v: (1 + 0.01 * np.cos(k * x)) * np.exp(-v**2 / 2)
    ...                     / np.sqrt(2 * np.pi), v_max=6.0)
    >>> simulation = Simulation([electrons], PhaseSpaceGrid(2 * np.pi / k, 8, 32))
    >>> simulation.advance(1.0)
    >>> bool(abs(simulation.mass()[0] / (2 * np.pi / k) - 1) < 1e-8)
    True
"""

from __future__ import annotations

import ctypes
import inspect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from scitoolkit.core.errors import ConfigError, NumericalError
from scitoolkit.generators.vlasov.basis import Integrals, Kind, evaluate, integrals
from scitoolkit.generators.vlasov.collisions import BGK
from scitoolkit.generators.vlasov.source import PAD, generate
from scitoolkit.ops.codegen import load_generated

# f_t + v f_x + a f_v = 0 with a = q E / m, by the discontinuous Galerkin method of Juno et al.
# (2018), J. Comput. Phys. 353, 110. In a cell f = sum_m f_m(t) psi_m(xi, eta), where
#
# xi, eta    (x - x_c) / h_x and (v - v_c) / h_v, in [-1, 1]; h are half widths of the cell
# psi_m      orthonormal polynomials on the reference cell, phi_n those of x alone
# E          sum_n E_n phi_n(xi), so that a v-face has one polynomial of x as its speed
# F_x, F_v   fluxes at faces: upwind in x, the mean with a penalty in v
#
# df_m/dt = (int psi_m,xi v f - [psi_m F_x]) / h_x + (int psi_m,eta a f - [psi_m F_v]) / h_v

Wall = Literal["periodic", "reflecting", "absorbing"]
Field = Literal["ampere", "poisson", "given"]
WALLS = {"periodic": 0, "reflecting": 1, "absorbing": 2}
FIELDS = {"ampere": 0, "poisson": 1, "given": 2}
LANES = 16  # cells of v are a multiple of it, whatever the vector width of the machine
QUADRATURE = 8
HEADROOM = 1.05
MOST_STEPS = 4096


@dataclass(frozen=True)
class Species:
    """Particle species.

    Attributes:
        initial: initial f(x, v), or f(x, vx, vy) in 1X2V, a function of broadcast arrays.
        v_max: velocities are truncated at -v_max and v_max, with zero flux.
        charge: of a particle.
        mass: of a particle.
        collision_frequency: of BGK collisions of the species with itself; 0 for none.
        vy_max: likewise for vy in 1X2V; by default `v_max`.
    """

    initial: Callable[..., np.ndarray]
    v_max: float
    charge: float = -1.0
    mass: float = 1.0
    collision_frequency: float = 0.0
    vy_max: float | None = None

    def __post_init__(self) -> None:
        """Refuse invalid collision frequencies and empty ranges of velocities."""
        for key, value in (("v_max", self.v_max), ("vy_max", self.vy_max)):
            if value is not None and not 0 < value < math.inf:
                raise ConfigError(f"{key} {value:g}", allowed="a positive speed")
        if not 0 <= self.collision_frequency < math.inf:
            raise ConfigError(
                f"collision_frequency {self.collision_frequency:g}", allowed="0 or more, finite"
            )


@dataclass(frozen=True)
class PhaseSpaceGrid:
    """Phase-space grid, basis, field equation and walls.

    Attributes:
        length: x is from 0 to length.
        cells_x: number of cells of x.
        cells_v: number of cells of v, a multiple of 16, so that v = 0 is a face on every machine.
        degree: polynomial degree p.
        basis: serendipity, or the larger tensor basis.
        left: wall at x = 0.
        right: wall at x = length.
        field: `ampere` (dE/dt = -J, conserves energy), `poisson`, or `given`: constant.
        flux_v: `penalised` adds half of the jump times the largest |a| to the mean of both sides;
            `central` also conserves f², but steep gradients oscillate.
        cells_vy: number of cells of vy; None for 1X1V.
    """

    length: float
    cells_x: int
    cells_v: int
    degree: int = 2
    basis: Kind = "serendipity"
    left: Wall = "periodic"
    right: Wall = "periodic"
    field: Field = "ampere"
    flux_v: Literal["penalised", "central"] = "penalised"
    cells_vy: int | None = None

    def __post_init__(self) -> None:
        """Refuse settings that the kernels do not support."""
        if self.cells_v % LANES or self.cells_v < LANES:
            raise ConfigError(
                f"cells_v {self.cells_v}",
                allowed=f"a multiple of {LANES}",
                fix=f"cells_v={max(LANES, round(self.cells_v / LANES) * LANES)}",
            )
        if self.cells_x < 2 or not self.length > 0 or self.degree not in (1, 2, 3):
            raise ConfigError(
                f"cells_x {self.cells_x}, length {self.length:g}, degree {self.degree}",
                allowed="at least 2 cells, a positive length, degree 1, 2 or 3",
            )
        if self.cells_vy is not None and self.cells_vy < 1:
            raise ConfigError(f"cells_vy {self.cells_vy}", allowed="1 or more, None for 1X1V")
        if (self.left == "periodic") != (self.right == "periodic"):
            raise ConfigError(
                f"walls {self.left} and {self.right}", allowed="both periodic, or neither"
            )

    @property
    def velocities(self) -> int:
        """Number of velocities of f, 1 or 2."""
        return 1 if self.cells_vy is None else 2

    @property
    def rows(self) -> int:
        """Number of rows of cells in vy; 1 in 1X1V."""
        return self.cells_vy or 1


class Simulation:
    """Simulation: state of all species and the field.

    Args:
        species: at least one.
        grid: see `PhaseSpaceGrid`.
        threads: number of threads, on which the bits of the result do not depend.
        cfl: fraction of the largest stable time step.
    """

    def __init__(
        self,
        species: Sequence[Species],
        grid: PhaseSpaceGrid,
        *,
        threads: int = 1,
        cfl: float = 0.9,
    ) -> None:
        if not 0 < cfl <= 1:
            raise ConfigError(f"cfl {cfl:g}: unstable", allowed="0 < cfl <= 1")
        self.species: tuple[Species, ...] = tuple(species)
        self.grid: PhaseSpaceGrid = grid
        self.cfl: float = cfl
        self.time: float = 0.0
        self.times: list[float] = []
        self.field_energies: list[float] = []
        self.integrals: Integrals = integrals(grid.degree, grid.basis, 1 + grid.velocities)
        self._library: Any = load_generated(
            generate, str(grid.degree), grid.basis, str(grid.velocities)
        )
        self._library.advance.restype = ctypes.c_int64
        self._threads = threads
        row = (grid.rows, self.integrals.num, grid.cells_v + 2 * PAD)
        faces, field = self.integrals.faces, (grid.cells_x, self.integrals.field)
        self._buffers = [np.zeros((grid.cells_x, *row)) for _ in range(3 * len(self.species))]
        self._fields = [np.zeros(field) for _ in range(3)]
        self._current = np.zeros((2, *field))
        self._ghosts = np.zeros((2, *row))
        self._scratch = np.zeros((threads, faces * (3 * grid.cells_v + 2 * PAD)))
        self._centres = [self.centres_v(s) for s in range(len(self.species))]
        self._about = np.array(
            [
                [self.half_v(s), k.charge / k.mass, k.charge, k.v_max, self.half_vy(s)]
                for s, k in enumerate(self.species)
            ]
        )
        self._collisions = {
            s: BGK(grid.degree, grid.basis, self._axes(s), k.collision_frequency)
            for s, k in enumerate(self.species)
            if k.collision_frequency
        }
        for s in range(len(self.species)):
            self.modes(s)[...] = self.project(self.species[s].initial, s)
        self.solve_poisson()

    @property
    def half_x(self) -> float:
        """Half width of a cell of x."""
        return self.grid.length / self.grid.cells_x / 2

    def half_v(self, species: int) -> float:
        """Half width of a cell of v."""
        return self.species[species].v_max / self.grid.cells_v

    def centres_x(self) -> np.ndarray:
        """Centres of the cells of x."""
        return self.half_x * (2 * np.arange(self.grid.cells_x) + 1)

    def centres_v(self, species: int = 0) -> np.ndarray:
        """Centres of the cells of v."""
        cells = np.arange(self.grid.cells_v)
        return self.half_v(species) * (2 * cells + 1) - self.species[species].v_max

    def half_vy(self, species: int) -> float:
        """Half width of a cell of vy; 1 in 1X1V, where f is integrated over vy."""
        kind = self.species[species]
        return (kind.vy_max or kind.v_max) / self.grid.rows if self.grid.cells_vy else 1.0

    def centres_vy(self, species: int = 0) -> np.ndarray:
        """Centres of the cells of vy in 1X2V."""
        cells = 2 * np.arange(self.grid.rows) + 1 - self.grid.rows
        return self.half_vy(species) * cells

    def modes(self, species: int = 0) -> np.ndarray:
        """Return the modes of f as a writable view.

        Its shape is (cells_x, N, cells_v), or (cells_x, cells_vy, N, cells_v) in 1X2V.
        """
        rows = self._rows(species)
        return rows if self.grid.cells_vy else rows[:, 0]

    def _rows(self, species: int) -> np.ndarray:
        """Return the modes of f, (cells_x, rows, N, cells_v)."""
        return self._buffers[3 * species][..., PAD:-PAD]

    def field_modes(self) -> np.ndarray:
        """Return the modes of E, (cells_x, p + 1): a view that may be written to."""
        return self._fields[0]

    def project(self, function: Callable[..., np.ndarray], species: int = 0) -> np.ndarray:
        """Return the modes of a function of x and v, or of x, vx and vy, by Gauss quadrature.

        Raises:
            ConfigError: the function takes other arguments.
        """
        g = self.grid
        _refuse_arguments(function, ("x", "v") if g.cells_vy is None else ("x", "vx", "vy"))
        nodes, weights = np.polynomial.legendre.leggauss(QUADRATURE)
        psi = evaluate(
            g.degree, g.basis, *np.meshgrid(*[nodes] * (1 + g.velocities), indexing="ij")
        )
        x = self.centres_x()[:, None] + self.half_x * nodes
        v = self._centres[species][:, None] + self.half_v(species) * nodes
        if g.cells_vy is None:
            values = function(x[:, :, None, None], v[None, None])
            values = np.broadcast_to(values, (*x.shape, *v.shape))
            # f_m = int int f psi_m dxi deta, as the modes are orthonormal.
            return np.einsum("xavb,a,b,mab->xmv", values, weights, weights, psi, optimize=True)
        projected = np.empty(self.modes(species).shape)
        for row, centre in enumerate(self.centres_vy(species)):
            vy = centre + self.half_vy(species) * nodes
            values = function(x[:, :, None, None, None], v[None, None, :, :, None], vy)
            values = np.broadcast_to(values, (*x.shape, *v.shape, *vy.shape))
            w = (weights, weights, weights)
            projected[:, row] = np.einsum("xavbc,a,b,c,mabc->xmv", values, *w, psi, optimize=True)
        return projected

    def advance(self, duration: float, *, time_step: float | None = None) -> None:
        """Advance by a duration, in equal steps of `time_step` or the largest that `cfl` allows.

        Raises:
            ConfigError: `time_step` violates the stability limit.
            NumericalError: f or E is not finite.
        """
        end, owed = self.time + duration, 0.0
        while end - self.time > 1e-12 * max(1.0, abs(end)):
            limit = self.stable_step()
            if time_step is not None and time_step > limit * HEADROOM:
                raise ConfigError(
                    f"time_step {time_step:g} is unstable",
                    where=f"time {self.time:g}",
                    allowed=f"at most {limit:.4g}",
                    fix=f"time_step={0.9 * limit:.3g}",
                )
            left = end - self.time
            # The field may grow during the steps. They begin below the limit; where one would
            # exceed it, the C function stops before it, and the loop continues with the new limit.
            wanted = time_step or self.cfl * limit / HEADROOM
            steps = math.ceil(left / wanted - 1e-9)
            if not self._collisions:
                self._steps(left / steps, min(steps, MOST_STEPS))
                continue
            # Strang splitting; two consecutive half steps are merged.
            self._collide(owed + left / steps / 2)
            self._steps(left / steps, 1)
            owed = left / steps / 2
        self._collide(owed)

    def _collide(self, duration: float) -> None:
        for s, collisions in self._collisions.items():
            collisions.relax(self.modes(s), duration)

    def stable_step(self) -> float:
        """Return the largest stable time step in the current field."""
        edge = float((np.abs(self._fields[0]) @ self.integrals.edge).max())
        rates = [
            k.v_max / (2 * self.half_x) + abs(k.charge / k.mass) * edge / (2 * self.half_v(s))
            for s, k in enumerate(self.species)
        ]
        # Sum over the dims of speed / width of a cell, below 1 / (2 p + 1) for Runge-Kutta of third
        # order (Cockburn and Shu 2001, J. Sci. Comput. 16, 173). `edge` bounds |E| by sum_n |E_n|
        # phi_n(1).
        limit = 1 / ((2 * self.grid.degree + 1) * max(rates))
        if not math.isfinite(limit):
            raise NumericalError("the field is not finite", where=f"time {self.time:g}")
        return limit

    def _steps(self, dt: float, steps: int) -> None:
        """Advance until a step would be unstable; the steps before are retained."""
        energies = np.empty(steps)
        sizes, numbers = self._sizes(steps), np.array([self.half_x, dt, self._penalty()])
        done = self._library.advance(
            _p(sizes),
            _p(numbers),
            _p(self._about),
            _pointers(self._buffers),
            _pointers(self._centres),
            _pointers(self._fields),
            _p(self._current),
            _p(self._ghosts),
            _p(self._scratch),
            _p(energies),
        )
        # The steps write from one buffer into the other: after an odd number the state is in the
        # second.
        if done % 2:
            for s in range(0, len(self._buffers), 3):
                self._buffers[s : s + 2] = self._buffers[s + 1], self._buffers[s]
            self._fields[:2] = self._fields[1], self._fields[0]
        if not np.isfinite(energies[:done]).all():
            raise NumericalError(
                "the field is not finite",
                where=f"time {self.time:g}",
                fix="a smaller cfl, a finer grid or a larger v_max",
            )
        if not done:
            raise NumericalError("no stable time step", where=f"time {self.time:g}")
        self.times += [self.time + dt * (i + 1) for i in range(done)]
        self.time = self.times[-1]
        self.field_energies += energies[:done].tolist()

    def solve_poisson(self) -> None:
        """Set E to the field of the charges, neutralised by a background unless a wall absorbs."""
        sizes, numbers = self._sizes(0), np.array([self.half_x, 0.0, 0.0])
        self._library.solve_poisson(
            _p(sizes),
            _p(numbers),
            _p(self._about),
            _pointers(self._buffers[::3]),
            _p(self._fields[0]),
            _p(self._current),
        )

    def moments(self, species: int = 0) -> np.ndarray:
        """Return the modes of density, momentum / mass and 2 energy / mass, (3, cells_x, p + 1).

        In 1X2V they are five: density, both of vx, both of vy.
        """
        f, v = self._rows(species), self._centres[species]
        h, hy = self.half_v(species), self.half_vy(species)
        plain, linear, square = (
            np.einsum("km,xymv->xkyv", m, f, optimize=True) for m in self.integrals.moments
        )
        moments = [
            plain.sum((-2, -1)),
            (plain @ v).sum(-1) + h * linear.sum((-2, -1)),
            # v = v_c + h eta: v^2 = v_c^2 + 2 h v_c eta + h^2 eta^2, with the integrals of psi_m
            # eta^r.
            (plain @ v**2 + 2 * h * (linear @ v) + h**2 * square.sum(-1)).sum(-1),
        ]
        if self.grid.cells_vy:
            vy, density = self.centres_vy(species), plain.sum(-1)
            linear, square = (
                np.einsum("km,xymv->xky", m, f, optimize=True) for m in self.integrals.moments_y
            )
            moments += [
                density @ vy + hy * linear.sum(-1),
                density @ vy**2 + 2 * hy * (linear @ vy) + hy**2 * square.sum(-1),
            ]
        return h * hy * np.stack(moments)

    def mass(self) -> np.ndarray:
        """Return the number of particles of each species."""
        return np.array([self._total(self.moments(s)[0]) for s in range(len(self.species))])

    def momentum(self) -> float:
        """Return the momentum along x of all particles."""
        return sum(k.mass * self._total(self.moments(s)[1]) for s, k in enumerate(self.species))

    def kinetic_energy(self) -> float:
        """Return the kinetic energy of all particles."""
        return sum(
            0.5 * k.mass * self._total(self.moments(s)[2::2].sum(0))
            for s, k in enumerate(self.species)
        )

    def field_energy(self) -> float:
        """Return the energy of the field."""
        return 0.5 * self.half_x * float((self._fields[0] ** 2).sum())

    def square(self, species: int = 0) -> float:
        """Return the integral of f², which only numerical dissipation decreases."""
        volume = self.half_x * self.half_v(species) * self.half_vy(species)
        return volume * float((self.modes(species) ** 2).sum())

    def edge_share(self) -> float:
        """Return the largest fraction of a species in the outermost cells of v."""
        shares = []
        for s in range(len(self.species)):
            cells = np.abs(self._rows(s)[:, :, 0]).sum(0)
            edges = [cells[:, 0] + cells[:, -1]]
            if self.grid.rows > 1:
                edges.append(cells[0] + cells[-1])
            shares += [edge.sum() / cells.sum() for edge in edges]
        return float(max(shares))

    def averages(self, species: int = 0) -> np.ndarray:
        """Return the cell averages of f, (cells_x, cells_v) or (cells_x, cells_vy, cells_v)."""
        # psi_0 is constant with a square that integrates to 1 over [-1, 1]^d: 2^(-d/2).
        return self.modes(species)[..., 0, :] / 2 ** ((1 + self.grid.velocities) / 2)

    def field_averages(self) -> np.ndarray:
        """Return the cell averages of E, (cells_x,)."""
        return self._fields[0][:, 0] / math.sqrt(2)

    def state(self) -> dict[str, np.ndarray]:
        """Return the state with which `restore` continues bit for bit."""
        state = {f"f_{s}": self.modes(s).copy() for s in range(len(self.species))}
        return {
            **state,
            "E": self._fields[0].copy(),
            "time": np.array(self.time),
            "times": np.array(self.times),
            "energies": np.array(self.field_energies),
        }

    def restore(self, state: dict[str, np.ndarray]) -> None:
        """Restore a state of a simulation with the same species and grid."""
        for s in range(len(self.species)):
            self.modes(s)[...] = state[f"f_{s}"]
        self._fields[0][...] = state["E"]
        self.time = float(state["time"])
        self.times, self.field_energies = state["times"].tolist(), state["energies"].tolist()

    def _axes(self, species: int) -> list[tuple[np.ndarray, float]]:
        """Return centres and half width of the cells for each velocity."""
        axes = [(self._centres[species], self.half_v(species))]
        if self.grid.cells_vy:
            axes.append((self.centres_vy(species), self.half_vy(species)))
        return axes

    def _total(self, modes: np.ndarray) -> float:
        return float(modes[:, 0].sum() * self.half_x * math.sqrt(2))

    def _penalty(self) -> float:
        return float(self.grid.flux_v == "penalised")

    def _sizes(self, steps: int) -> np.ndarray:
        g = self.grid
        return np.array(
            [
                len(self.species),
                g.cells_x,
                g.cells_v,
                WALLS[g.left],
                WALLS[g.right],
                FIELDS[g.field],
                self._threads,
                steps,
                g.rows,
            ],
            np.int64,
        )


def _refuse_arguments(function: Callable[..., np.ndarray], coordinates: tuple[str, ...]) -> None:
    try:
        inspect.signature(function).bind(*coordinates)
    except TypeError as error:
        names = ", ".join(coordinates)
        raise ConfigError(
            f"a distribution cannot be called with ({names}): {error}",
            where=f"a grid of 1X{len(coordinates) - 1}V",
            allowed=f"a function of ({names})",
            fix="PhaseSpaceGrid(cells_vy=...) for two velocities, None for one",
        ) from error


def _p(array: np.ndarray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def _pointers(arrays: Sequence[np.ndarray]) -> Any:
    return (ctypes.c_void_p * len(arrays))(*(a.ctypes.data for a in arrays))
