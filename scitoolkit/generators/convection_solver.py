"""Spectral solver of two-dimensional Rayleigh-Bénard convection between no-slip walls.

The unknowns are stream function and buoyancy: u = psi_z, w = -psi_x, omega = lap psi, so that
continuity is exact. Fourier modes in x (2/3 rule), Chebyshev collocation in z, SBDF2 in time with
implicit diffusion, by one small matrix per wavenumber that is inverted once. In free-fall units,

    omega_t + u omega_x + w omega_z = R lap omega - b_x,   b_t + u b_x + w b_z = P lap b,

with P = (Ra Pr)^-1/2, R = (Ra / Pr)^-1/2, b = 1/2 at z = -1/2 and -1/2 at z = 1/2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy import fft

State = tuple[np.ndarray, np.ndarray, np.ndarray]


@dataclass
class Convection:
    """Flow between two plates that is advanced in time.

    The state consists of b and psi, complex (modes, nodes), and the mean velocity, (nodes,).

    Args:
        nx: number of points along x.
        nz: polynomial order along z; there are nz + 1 nodes.
        rayleigh: Rayleigh number.
        prandtl: Prandtl number.
        length: period along x, in units of the layer height.
        dt: time step, in free-fall times.

    Example:
        >>> flow = Convection(16, 12, rayleigh=1e4, dt=0.01)
        >>> flow.start_at_rest(seed=0)
        >>> flow.step()
        >>> b, u, w, omega = flow.fields()
        >>> b.shape, bool(abs(u[:, 0]).max() < 1e-12)
        ((16, 13), True)
    """

    nx: int = 128
    nz: int = 48
    rayleigh: float = 1e6
    prandtl: float = 1.0
    length: float = 4.0
    dt: float = 0.00625
    b: np.ndarray = field(init=False, repr=False)
    psi: np.ndarray = field(init=False, repr=False)
    mean: np.ndarray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Invert the implicit operators."""
        self.modes: int = (self.nx - 1) // 3 + 1  # 2/3 rule; a third itself would be aliased
        self.k: np.ndarray = 2 * np.pi * np.arange(self.modes) / self.length
        self.z, self.d = chebyshev(self.nz)
        self.diffusivity: float = (self.rayleigh * self.prandtl) ** -0.5
        self.viscosity: float = (self.rayleigh / self.prandtl) ** -0.5
        second = self.d @ self.d
        self.laplacian: np.ndarray = second[None] - (self.k**2)[:, None, None] * np.eye(self.nz + 1)
        self.weights: np.ndarray = quadrature_weights(self.z)
        self._first = self._inverses(1.0)
        self._later = self._inverses(1.5)
        self._old: tuple[list[np.ndarray], list[np.ndarray]] | None = None
        self._omega = np.zeros(0)

    def _inverses(self, a: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the inverse operators of b, psi (k, z, z) and the mean velocity (z, z)."""
        # (a - dt P lap) b = rhs and (a lap - dt R lap lap) psi = rhs, with a = 1 for the first
        # step (Euler) and 3/2 for later ones (SBDF2). Rows of walls hold boundary conditions:
        #
        # b      rows 0, n: the value
        # psi    rows 0, n: no flow through the wall; rows 1, n - 1: no slip, psi_z = 0
        # mean   rows 0, n: no slip of the mean of u, which no wave of psi contains
        n, eye, dt = self.nz, np.eye(self.nz + 1), self.dt
        heat = a * eye - dt * self.diffusivity * self.laplacian
        heat[:, [0, n]] = eye[[0, n]]
        flow = a * self.laplacian - dt * self.viscosity * (self.laplacian @ self.laplacian)
        flow[:, [0, n]], flow[:, [1, n - 1]] = eye[[0, n]], self.d[[0, n]]
        mean = a * eye - dt * self.viscosity * self.laplacian[0]
        mean[[0, n]] = eye[[0, n]]
        flow[0] = eye
        return np.linalg.inv(heat), np.linalg.inv(flow), np.linalg.inv(mean)

    def start(self, b: np.ndarray, w: np.ndarray, u_mean: np.ndarray) -> None:
        """Set the state.

        Args:
            b: buoyancy, (nx, nz + 1) at the nodes.
            w: vertical velocity, likewise.
            u_mean: mean of u along x, (nz + 1,).
        """
        self.b = fft.rfft(b, axis=0, norm="forward")[: self.modes].copy()
        vertical = fft.rfft(w, axis=0, norm="forward")[: self.modes]
        self.psi = np.zeros_like(self.b)
        # w = -psi_x = -i k psi.
        self.psi[1:] = 1j * vertical[1:] / self.k[1:, None]
        self.mean, self._old = np.array(u_mean, float), None

    def state(self) -> State:
        """Return the modes of b and psi, (modes, nodes), and the mean velocity, (nodes,)."""
        return self.b.copy(), self.psi.copy(), self.mean.copy()

    def restart(self, before: State, now: State) -> None:
        """Set the states before and after the last time step."""
        self.b, self.psi, self.mean = before
        new = self._tendencies()
        self._old = [self.b, self._omega.copy(), self.mean], new
        self.b, self.psi, self.mean = now

    def first_step(self) -> None:
        """Advance by one time step of the first order, which needs no earlier state."""
        self._old = None
        self.step()

    def start_at_rest(self, seed: int, amplitude: float = 0.1, waves: int = 12) -> None:
        """Set fluid at rest with random long-wave perturbations of the conductive profile."""
        generator = np.random.default_rng(seed)
        x = 2 * np.pi * np.arange(self.nx) / self.nx
        shape = (0.25 - self.z**2) * 4
        b = -np.broadcast_to(self.z, (self.nx, self.nz + 1)).copy()
        for wave in range(1, waves + 1):
            for function in (np.cos, np.sin):
                profile = shape * (generator.normal() + generator.normal() * self.z)
                b += amplitude / waves * function(wave * x)[:, None] * profile
        self.start(b, np.zeros_like(b), np.zeros(self.nz + 1))

    def fields(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Return b, u, w and omega, (nx, nz + 1) each."""
        u = self.psi @ self.d.T
        u[0] = self.mean
        self._omega = np.matmul(self.laplacian, self.psi[..., None])[..., 0]
        self._omega[0] = self.d @ self.mean
        w = -1j * self.k[:, None] * self.psi
        b, u, w, omega = (self._points(f) for f in (self.b, u, w, self._omega))
        return b, u, w, omega

    def _points(self, modes: np.ndarray) -> np.ndarray:
        return fft.irfft(modes, self.nx, axis=0, norm="forward")

    def _modes(self, *points: np.ndarray) -> list[np.ndarray]:
        return [fft.rfft(p, axis=0, norm="forward")[: self.modes] for p in points]

    def _tendencies(self) -> list[np.ndarray]:
        b, u, w, omega = self.fields()
        ub, wb, uo, wo, uw = self._modes(u * b, w * b, u * omega, w * omega, u * w)
        ik = 1j * self.k[:, None]
        return [
            -(ik * ub + wb @ self.d.T),
            -(ik * uo + wo @ self.d.T) - ik * self.b,
            -(self.d @ uw[0].real),
        ]

    def step(self) -> None:
        """Advance by one time step."""
        new, now, n = self._tendencies(), [self.b, self._omega, self.mean], self.nz
        if self._old is None:
            heat, flow, mean = self._first
            rhs = [x + self.dt * t for x, t in zip(now, new, strict=True)]
        else:
            heat, flow, mean = self._later
            rhs = [
                # (3/2 q' - 2 q + 1/2 q_old) / dt = 2 N - N_old + L q': explicit terms are
                # extrapolated.
                2 * x - 0.5 * y + self.dt * (2 * t - s)
                for x, y, t, s in zip(now, self._old[0], new, self._old[1], strict=True)
            ]
        self._old = ([x.copy() for x in now], new)
        rhs[0][:, [0, n]] = 0
        rhs[0][0, [0, n]] = 0.5, -0.5
        rhs[1][:, [0, 1, n - 1, n]] = 0
        rhs[2][[0, n]] = 0
        self.b = _apply(heat, rhs[0])
        self.psi = _apply(flow, rhs[1])
        self.psi[0] = 0
        self.mean = mean @ rhs[2]

    def advance(self, time: float) -> None:
        """Advance by the nearest number of time steps; an unstable flow becomes non-finite."""
        with np.errstate(over="ignore", invalid="ignore"):
            for _ in range(round(time / self.dt)):
                self.step()

    @cached_property
    def _poisson(self) -> np.ndarray:
        matrix = self.laplacian[1:].copy()
        matrix[:, [0, self.nz]] = self.d[[0, self.nz]]
        return np.linalg.inv(matrix)

    def pressure(self) -> np.ndarray:
        """Return the pressure, (nx, nz + 1), of zero mean, from its Poisson equation."""
        _, u, w, _ = self.fields()
        uu, uw, ww = self._modes(u * u, u * w, w * w)
        ik, n, d = 1j * self.k[:, None], self.nz, self.d.T
        # lap p = b_z - (u u)_xx - 2 (u w)_xz - (w w)_zz, with p_z = b + R w_zz at the walls, where
        # u = w = 0.
        rhs = self.b @ d - (ik * ik * uu + 2 * ik * (uw @ d) + ww @ d @ d)
        slope = self.b + self.viscosity * ((-ik * self.psi) @ d @ d)
        rhs[:, [0, n]] = slope[:, [0, n]]
        p = np.zeros_like(rhs)
        p[1:] = _apply(self._poisson, rhs[1:])
        # The mean over x: p_z = b - (w w)_z, with a vanishing integral instead of the row of a
        # wall.
        integral = self.d.copy()
        integral[0] = self.weights
        mean = self.b[0].real - self.d @ ww[0].real
        mean[0] = 0
        p[0] = np.linalg.solve(integral, mean)
        return self._points(p)

    def frame(self, nx: int, nz: int) -> dict[str, np.ndarray]:
        """Return p, b, u, w, (nx, nz) each: uniform in x, Chebyshev-Gauss points in z."""
        b, u, w, _ = self.fields()
        values = {"p": self.pressure(), "b": b, "u": u, "w": w}
        return {n: self._resampled(v, nx) @ self._to_gauss(nz).T for n, v in values.items()}

    def _resampled(self, values: np.ndarray, nx: int) -> np.ndarray:
        if nx == self.nx:
            return values
        return fft.irfft(
            fft.rfft(values, axis=0, norm="forward")[: nx // 2 + 1], nx, axis=0, norm="forward"
        )

    def _to_gauss(self, nz: int) -> np.ndarray:
        return evaluation_matrix(self.z, gauss_points(nz))


def chebyshev(n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return n + 1 Gauss-Lobatto nodes on [-1/2, 1/2], ascending, and the derivative matrix.

    Source: L. N. Trefethen, Spectral Methods in MATLAB, chapter 6 (doi:10.1137/1.9780898719598).

    Example:
        >>> nodes, derivative = chebyshev(4)
        >>> bool(np.allclose(derivative @ nodes**2, 2 * nodes))
        True
    """
    s = -np.cos(np.pi * np.arange(n + 1) / n)
    c = np.r_[2.0, np.ones(n - 1), 2.0] * (-1.0) ** np.arange(n + 1)
    d = np.outer(c, 1 / c) / (s[:, None] - s[None, :] + np.eye(n + 1))
    # The derivative of a constant is zero up to rounding, which closed formulas for the diagonal
    # are not.
    d -= np.diag(d.sum(1))
    return 0.5 * s, 2.0 * d


def quadrature_weights(nodes: np.ndarray) -> np.ndarray:
    """Return quadrature weights of the integral over [-1/2, 1/2] for values at `nodes`."""
    order = len(nodes) - 1
    moments = np.zeros(order + 1)
    # Integral of T_k(2 z) over [-1/2, 1/2]: 1 / (1 - k^2) for even k, 0 for odd ones.
    moments[::2] = 1 / (1 - np.arange(0, order + 1, 2) ** 2.0)
    return np.linalg.solve(np.polynomial.chebyshev.chebvander(2 * nodes, order).T, moments)


def gauss_points(n: int) -> np.ndarray:
    """Return the n Chebyshev-Gauss points of [-1/2, 1/2], ascending, without the walls."""
    return -0.5 * np.cos(np.pi * (np.arange(n) + 0.5) / n)


def evaluation_matrix(nodes: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Return the interpolation matrix from polynomial values at `nodes` to those at `points`."""
    vander, order = np.polynomial.chebyshev.chebvander, len(nodes) - 1
    return np.linalg.solve(vander(2 * nodes, order).T, vander(2 * points, order).T).T


def _apply(matrix: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return real matrices (k, z, z) times complex vectors (k, z)."""
    pair = np.stack([values.real, values.imag], -1)
    out = np.matmul(matrix, pair)
    return out[..., 0] + 1j * out[..., 1]
