"""BGK collisions: f relaxes towards the Maxwellian of its density, velocity and temperature.

With the Maxwellian fixed by moments that collisions do not change, `f_t = nu (f_M - f)` is solved
exactly over a time step. The projected Maxwellian is corrected, by the smallest change in the norm
weighed by itself, so that all modes of its three moments are those of f: particles, momentum and
energy are conserved to rounding. Bhatnagar, Gross and Krook 1954, Phys. Rev. 94, 511.
"""

from __future__ import annotations

import math

import numpy as np

from scitoolkit.core.errors import NumericalError
from scitoolkit.generators.vlasov.basis import Kind, evaluate, integrals, legendre

MOMENTS = 3


class BGK:
    """Collisions of a species with itself.

    Args:
        degree: p, of the polynomials.
        basis: kind of the basis.
        centres_v: centres of the cells of v.
        half_v: half the width of a cell of v.
        frequency: nu.
    """

    def __init__(
        self, degree: int, basis: Kind, centres_v: np.ndarray, half_v: float, frequency: float
    ) -> None:
        self.frequency: float = frequency
        nodes, weights = np.polynomial.legendre.leggauss(degree + 2)
        self._v = centres_v[:, None] + half_v * nodes
        self._legendre = legendre(degree, nodes)
        psi = evaluate(degree, basis, *np.meshgrid(nodes, nodes, indexing="ij"))
        self._project = np.einsum("mab,a,b->mab", psi, weights, weights)
        plain, linear, square = integrals(degree, basis).moments
        v, h = centres_v, half_v
        self._moments = h * np.stack([
            plain[..., None] + 0 * v, plain[..., None] * v + h * linear[..., None],
            plain[..., None] * v**2 + 2 * h * linear[..., None] * v + h**2 * square[..., None],
        ]).reshape(MOMENTS * len(plain), -1)  # fmt: skip

    def moments(self, modes: np.ndarray) -> np.ndarray:
        """Return the modes of density, flux and 2 energy / mass: (cells_x, 3, p + 1).

        Args:
            modes: of f, (cells_x, N, cells_v).
        """
        found = modes.reshape(len(modes), -1) @ self._moments.T
        return found.reshape(len(modes), MOMENTS, -1)

    def maxwellian(self, modes: np.ndarray) -> np.ndarray:
        """Return the modes of the Maxwellian that has the moments of f, (cells_x, N, cells_v).

        Raises:
            NumericalError: density or temperature is not positive somewhere.
        """
        wanted = self.moments(modes)
        density, flux, square = np.moveaxis(wanted @ self._legendre, 1, 0)
        with np.errstate(all="ignore"):
            velocity = flux / density
            temperature = square / density - velocity**2
        if not (density > 0).all() or not (temperature > 0).all():
            cell = int(np.argmin((density > 0).all(1) & (temperature > 0).all(1)))
            raise NumericalError(
                "density or temperature is not positive, and collisions need both",
                where=f"cell {cell} of x", fix="a finer grid",
            )  # fmt: skip
        n, u, t = (a[:, :, None, None] for a in (density, velocity, temperature))
        values = n / np.sqrt(2 * np.pi * t) * np.exp(-((self._v - u) ** 2) / (2 * t))
        found = np.einsum("xavb,mab->xmv", values, self._project, optimize=True)
        return self._corrected(found, wanted)

    def relax(self, modes: np.ndarray, duration: float) -> None:
        """Let collisions act on f for a time, in place."""
        share = math.exp(-self.frequency * duration)
        target = self.maxwellian(modes)
        modes *= share
        modes += (1 - share) * target

    def _corrected(self, found: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """Return the Maxwellian with the moments that are wanted."""
        missing = (wanted - self.moments(found)).reshape(len(found), -1, 1)
        weights = np.tile(np.abs(found[:, 0]), (1, found.shape[1]))
        weighed = self._moments * weights[:, None]
        change = np.linalg.solve(weighed @ self._moments.T, missing)
        return found + (weighed.transpose(0, 2, 1) @ change).reshape(found.shape)
