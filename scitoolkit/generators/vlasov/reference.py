"""Reference implementation of the scheme in NumPy, with dense matrices from quadrature.

Integrals of products of up to three modes are exact with 8 Gauss points. Unlike the kernels, it
uses neither constants from rational arithmetic nor traces at faces. In 1X2V the rate is that of a
row of cells of one vy.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from scitoolkit.generators.vlasov.basis import Kind, evaluate, legendre

POINTS = 8


class DenseReference:
    """Dense matrices of one basis.

    Args:
        degree: polynomial degree p.
        basis: serendipity or tensor.
        velocities: 1 or 2.
    """

    def __init__(self, degree: int, basis: Kind, velocities: int = 1) -> None:
        def points(dims: int) -> tuple[np.ndarray, np.ndarray]:
            """Return the coordinates of all points, (dims, points), and their weights."""
            nodes, weights = np.polynomial.legendre.leggauss(POINTS)
            grid = np.stack(np.meshgrid(*[nodes] * dims, indexing="ij")).reshape(dims, -1)
            return grid, functools.reduce(np.multiply.outer, [weights] * dims).ravel()

        (xi, eta, *rest), self._weights = points(1 + velocities)
        (line, *others), self._line = points(velocities)
        ends = {side: np.full_like(line, side) for side in (-1, 1)}
        self.psi = evaluate(degree, basis, xi, eta, *rest)
        self.d_xi = _derivative(lambda h: evaluate(degree, basis, xi + h, eta, *rest))
        self.d_eta = _derivative(lambda h: evaluate(degree, basis, xi, eta + h, *rest))
        self.phi = legendre(degree, xi)
        self.at_xi = {s: evaluate(degree, basis, end, line, *others) for s, end in ends.items()}
        self.at_eta = {s: evaluate(degree, basis, line, end, *others) for s, end in ends.items()}
        self.eta, self.eta_line = eta, line
        self.phi_line = legendre(degree, line)
        self.edge = legendre(degree, np.ones(1))[:, 0]

    def rate(
        self,
        f: np.ndarray,
        a: np.ndarray,
        half_x: float,
        half_v: float,
        centres: np.ndarray,
        penalty: float = 1.0,
    ) -> np.ndarray:
        """Return df/dt on a periodic grid.

        Args:
            f: modes, (cells_x, N, cells_v).
            a: modes of the acceleration, (cells_x, p + 1).
            half_x: half width of a cell of x.
            half_v: half width of a cell of v.
            centres: of the cells of v.
            penalty: 1 for the penalised flux, 0 for the central one.
        """
        along_x = np.stack([self._advect(f, half_v, j, v) for j, v in enumerate(centres)], axis=-1)
        return along_x / half_x + self._accelerate(f, a, penalty) / half_v

    def _advect(self, f: np.ndarray, half_v: float, j: int, v: float) -> np.ndarray:
        """Return (cells_x, N) of -v df/dx in the cells of v number j."""
        speed = v + half_v * self.eta
        volume = np.einsum("lp,p,mp,p->lm", self.d_xi, speed, self.psi, self._weights)
        line = (v + half_v * self.eta_line) * self._line

        def face(test: int, trial: int) -> np.ndarray:
            return np.einsum("lb,mb,b->lm", self.at_xi[test], self.at_xi[trial], line)

        cells = f[:, :, j]
        if v > 0:
            right, left = face(1, 1), face(-1, 1)
            return cells @ (volume - right).T + np.roll(cells, 1, 0) @ left.T
        right, left = face(1, -1), face(-1, -1)
        return cells @ (volume + left).T - np.roll(cells, -1, 0) @ right.T

    def _accelerate(self, f: np.ndarray, a: np.ndarray, penalty: float) -> np.ndarray:
        volume = np.einsum(
            "lp,np,mp,p->lnm", self.d_eta, self.phi, self.psi, self._weights, optimize=True
        )
        out = np.einsum("lnm,xn,xmv->xlv", volume, a, f, optimize=True)
        tau = penalty * np.abs(a) @ self.edge
        strength = np.einsum("xn,na->xa", a, self.phi_line)
        low = np.einsum("xmv,ma->xav", f[:, :, :-1], self.at_eta[1])  # from below each face
        high = np.einsum("xmv,ma->xav", f[:, :, 1:], self.at_eta[-1])
        flux = strength[:, :, None] * (low + high) / 2 - tau[:, None, None] * (high - low) / 2
        weighted = flux * self._line[None, :, None]
        out[:, :, :-1] -= np.einsum("la,xav->xlv", self.at_eta[1], weighted)
        out[:, :, 1:] += np.einsum("la,xav->xlv", self.at_eta[-1], weighted)
        return out

    def current(self, f: np.ndarray, half_v: float, centres: np.ndarray) -> np.ndarray:
        """Return the modes of the integral of v f over v, (cells_x, p + 1)."""
        speed = centres[:, None] + half_v * self.eta
        table = np.einsum(
            "kp,vp,mp,p->kmv", self.phi, speed, self.psi, self._weights, optimize=True
        )
        return half_v * np.einsum("kmv,xmv->xk", table, f)


def _derivative(function: Callable[[float], np.ndarray]) -> np.ndarray:
    """Return the derivative at 0 of a polynomial of degree up to 6, by Richardson extrapolation."""
    step = 0.5  # the formula is exact for any step; a larger one rounds less
    one, two, three = (
        (function(k * step) - function(-k * step)) / (2 * k * step) for k in (1, 2, 3)
    )
    return (15 * one - 6 * two + three) / 10
