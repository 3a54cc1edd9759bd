"""ETDRK4: fourth-order exponential time differencing for stiff diagonal linear parts."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

CONTOUR_POINTS = 32

Step = Callable[[np.ndarray], np.ndarray]


def etdrk4(linear: np.ndarray, dt: float, nonlinear: Step) -> Step:
    """Return a function that advances v' = linear v + nonlinear(v) by one time step.

    The coefficients are computed by contour integrals, over half a circle for a real linear part.

    Args:
        linear: diagonal of the linear part, real or complex, of the shape of v.
        dt: time step.
        nonlinear: rest of the right-hand side.

    Source: Kassam and Trefethen 2005, SIAM J. Sci. Comput. 26(4), 1214, equations 26 to 29.

    Example:
        >>> step = etdrk4(np.array([-1.0]), 0.1, lambda v: 0 * v)
        >>> bool(np.isclose(step(np.ones(1))[0], np.exp(-0.1)))
        True
    """
    # (e^z - 1) / z and its relatives cancel for small z. As means of an analytic function over a
    # circle around z they need no division by a small number (Kassam and Trefethen, section 3). For
    # real z the lower half of the circle is the conjugate of the upper one.
    half_circle = np.isrealobj(linear)
    turn = np.pi if half_circle else 2 * np.pi
    circle = np.exp(1j * turn * (np.arange(CONTOUR_POINTS) + 0.5) / CONTOUR_POINTS)
    z = dt * linear[..., None] + circle
    whole, half = np.exp(dt * linear), np.exp(dt * linear / 2)

    def mean(values: np.ndarray) -> np.ndarray:
        average = np.mean(values, -1)
        return average.real if half_circle else average

    q = dt * mean((np.exp(z / 2) - 1) / z)
    f1 = dt * mean((-4 - z + np.exp(z) * (4 - 3 * z + z**2)) / z**3)
    f2 = dt * mean((2 + z + np.exp(z) * (z - 2)) / z**3)
    f3 = dt * mean((-4 - 3 * z - z**2 + np.exp(z) * (4 - z)) / z**3)

    def step(v: np.ndarray) -> np.ndarray:
        n = nonlinear(v)
        a = half * v + q * n
        na = nonlinear(a)
        b = half * v + q * na
        nb = nonlinear(b)
        c = half * a + q * (2 * nb - n)
        return whole * v + f1 * n + 2 * f2 * (na + nb) + f3 * nonlinear(c)

    return step


def frames_of(
    step: Step, state: np.ndarray, points: Step, *, spinup: int, frames: int, interval: int
) -> np.ndarray:
    """Advance a spectral state and return its values (frames, ...) every `interval` steps.

    Args:
        step: advances a spectrum by one time step.
        state: initial spectrum.
        points: converts a spectrum to values at points.
        spinup: number of frames that are discarded at the start.
        frames: number of frames that are returned.
        interval: steps between frames.
    """
    stored_frames = []
    for frame in range(spinup + frames):
        for _ in range(interval):
            state = step(state)
        if frame >= spinup:
            stored_frames.append(points(state))
    return np.stack(stored_frames)
