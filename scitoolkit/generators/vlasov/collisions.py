"""BGK collisions: relaxation of f to the Maxwellian of its density, velocity and temperature.

Collisions do not change the moments that define the Maxwellian, so `f_t = nu (f_M - f)` is solved
exactly over a time step. The projected Maxwellian receives the smallest correction, in the norm
weighted by itself, that gives its three moments the modes of those of f: particles, momentum and
energy are conserved to rounding.

Source: Bhatnagar, Gross and Krook 1954, Phys. Rev. 94, 511.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

import numpy as np

from scitoolkit.core.errors import NumericalError
from scitoolkit.generators.vlasov.basis import Kind, evaluate, integrals, legendre

LARGEST = 2**20
"""Largest number of values of weighted moments in one batch of cells of x."""


class BGK:
    """BGK collisions of a species with itself.

    In 1X2V the Maxwellian is isotropic, and the total energy of both velocities is conserved.

    Args:
        degree: polynomial degree p.
        basis: kind of the basis.
        axes: centres and half width of the cells of v, then those of vy in 1X2V.
        frequency: collision frequency nu.
    """

    def __init__(
        self, degree: int, basis: Kind, axes: Sequence[tuple[np.ndarray, float]], frequency: float
    ) -> None:
        self.frequency: float = frequency
        nodes, weights = np.polynomial.legendre.leggauss(degree + 2)
        self._points = [centres[:, None] + half * nodes for centres, half in axes]
        self._legendre = legendre(degree, nodes)
        dims = 1 + len(axes)
        weight = functools.reduce(np.multiply.outer, [weights] * dims)
        psi = evaluate(degree, basis, *np.meshgrid(*[nodes] * dims, indexing="ij"))
        self._project = psi * weight
        self._moments = _moments(degree, basis, axes)

    def moments(self, modes: np.ndarray) -> np.ndarray:
        """Return the modes of density, flux by axis and 2 energy / mass, (cells_x, 3 or 4, p + 1).

        Args:
            modes: of f, (cells_x, N, cells_v) or (cells_x, cells_vy, N, cells_v).
        """
        moments = modes.reshape(len(modes), -1) @ self._moments.T
        return moments.reshape(len(modes), 2 + len(self._points), -1)

    def maxwellian(self, modes: np.ndarray) -> np.ndarray:
        """Return the modes of the Maxwellian with the moments of f, in the shape of `modes`.

        Raises:
            NumericalError: density or temperature is not positive.
        """
        wanted = self.moments(modes)
        density, *fluxes, square = np.moveaxis(wanted @ self._legendre, 1, 0)
        dims = len(fluxes)
        with np.errstate(all="ignore"):
            velocities = [flux / density for flux in fluxes]
            temperature = (square / density - sum(u**2 for u in velocities)) / dims
        if not (density > 0).all() or not (temperature > 0).all():
            cell = int(np.argmin((density > 0).all(1) & (temperature > 0).all(1)))
            raise NumericalError(
                "collisions require a positive density and temperature",
                where=f"cell {cell} of x",
                fix="a finer grid",
            )
        n, t, *us = (a[:, :, None, None] for a in (density, temperature, *velocities))
        parts = [np.exp(-((v - u) ** 2) / (2 * t)) for v, u in zip(self._points, us, strict=True)]
        parts[0] = n / np.sqrt(2 * np.pi * t) ** dims * parts[0]
        path = "xavb,mab->xmv" if dims == 1 else "xavb,xayc,mabc->xymv"
        projected = np.einsum(path, *parts, self._project, optimize=True)
        return self._corrected(projected, wanted)

    def relax(self, modes: np.ndarray, duration: float) -> None:
        """Apply collisions to f for a duration, in place."""
        # f(t + dt) = M + (f(t) - M) exp(-nu dt), since M does not change.
        share = math.exp(-self.frequency * duration)
        target = self.maxwellian(modes)
        modes *= share
        modes += (1 - share) * target

    def _corrected(self, modes: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """Return the Maxwellian corrected to the moments `wanted`."""
        missing = (wanted - self.moments(modes)).reshape(len(modes), -1, 1)
        weights = np.broadcast_to(np.abs(modes[..., :1, :]), modes.shape).reshape(len(modes), -1)
        together = max(1, LARGEST // self._moments.size)
        for first in range(0, len(modes), together):
            cells = slice(first, first + together)
            # Least change d in the norm sum d^2 / w with A d = missing, A the matrix of moments and
            # w the Maxwellian's averages: d = W A^T (A W A^T)^-1 missing. Cells without particles
            # are not changed.
            weighed = self._moments * weights[cells, None]
            change = np.linalg.solve(weighed @ self._moments.T, missing[cells])
            modes[cells] += (weighed.transpose(0, 2, 1) @ change).reshape(modes[cells].shape)
        return modes


def _moments(degree: int, basis: Kind, axes: Sequence[tuple[np.ndarray, float]]) -> np.ndarray:
    """Return the matrix from f to the modes of density, flux by axis and 2 energy / mass."""
    k = integrals(degree, basis, 1 + len(axes))
    tables = [k.moments[1:], k.moments_y][: len(axes)]
    cells = [len(centres) for centres, _ in axes[::-1]]
    shape = (k.field, *cells[:-1], k.num, cells[-1])  # (p + 1, [cells_vy,] N, cells_v)

    def spread(table: np.ndarray) -> np.ndarray:
        return table.reshape(k.field, *[1] * (len(axes) - 1), k.num, 1)

    plain, fluxes = spread(k.moments[0]), []
    squares = np.zeros(shape)
    for axis, ((linear, square), (centres, h)) in enumerate(zip(tables, axes, strict=True)):
        v = centres if axis == 0 else centres[:, None, None]
        fluxes.append(plain * v + h * spread(linear))
        squares += plain * v**2 + 2 * h * spread(linear) * v + h**2 * spread(square)
    measure = math.prod(half for _, half in axes)
    rows = [np.broadcast_to(row, shape) for row in (plain, *fluxes, squares)]
    return measure * np.stack(rows).reshape(len(rows) * k.field, -1)
