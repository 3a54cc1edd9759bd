"""Series with known floors: Lorenz-63, Lorenz-96, Kuramoto-Sivashinsky, waves under noise.

Only numpy is imported, so that the environments of the peers can make the same series.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np


def runge_kutta(rate: Callable, state, step: float, count: int, every: int, skip: int):
    """Return (count, ...) states of dx/dt = rate(x), `every` steps apart, after `skip` steps."""
    out = []
    for number in range(skip + count * every):
        if number >= skip and (number - skip) % every == 0:
            out.append(state)
        a = rate(state)
        b = rate(state + step / 2 * a)
        c = rate(state + step / 2 * b)
        d = rate(state + step * c)
        state = state + step / 6 * (a + 2 * b + 2 * c + d)
    return np.array(out)


def patterns():
    """Return longitude- and latitude-like angles (y, x) of a 24 x 12 grid."""
    return np.meshgrid(np.arange(24) * 2 * np.pi / 24, np.arange(12) * np.pi / 12)


def lorenz63(count: int = 2500, seed: int = 0, noise: float = 0.02):
    """Return a field (count, y, x) whose three patterns follow Lorenz-63, step 0.05."""

    def rate(s):
        return np.array([10 * (s[1] - s[0]), s[0] * (28 - s[2]) - s[1], s[0] * s[1] - 8 / 3 * s[2]])

    z = runge_kutta(rate, np.array([1.0, 1.0, 20.0 + seed]), 0.01, count, 5, 2000)
    z = (z - z.mean(axis=0)) / z.std(axis=0)
    x, y = patterns()
    shapes = np.stack([np.cos(x), np.sin(x) * np.cos(y), np.cos(2 * x) * np.sin(y)])
    field = np.einsum("tk,kyx->tyx", z, shapes)
    return field + noise * np.random.default_rng(seed).standard_normal(field.shape)


def lorenz96(count: int = 2500, seed: int = 0, noise: float = 0.0, points: int = 40):
    """Return Lorenz-96 (count, x), forcing 8, step 0.05."""
    rng = np.random.default_rng(seed)

    def rate(x):
        return (np.roll(x, -1) - np.roll(x, 2)) * np.roll(x, 1) - x + 8.0

    start = 8 + 0.01 * rng.standard_normal(points)
    x = runge_kutta(rate, start, 0.05, count, 1, 500)
    return x + noise * rng.standard_normal(x.shape)


def kuramoto_sivashinsky(count: int = 5000, seed: int = 0, points: int = 64, length: float = 22.0):
    """Return Kuramoto-Sivashinsky (count, x) on a ring, step 0.25, by ETDRK4.

    Source:
        Kassam & Trefethen 2005, doi:10.1137/S1064827502410633.
    """
    rng = np.random.default_rng(seed)
    k = 2 * np.pi / length * np.arange(points // 2 + 1)
    linear, h = k**2 - k**4, 0.05
    roots = np.exp(1j * np.pi * (np.arange(1, 17) - 0.5) / 16)
    z = h * linear[:, None] + roots
    whole, half = np.exp(h * linear), np.exp(h * linear / 2)
    q = h * ((np.exp(z / 2) - 1) / z).mean(axis=1).real
    f1 = h * ((-4 - z + np.exp(z) * (4 - 3 * z + z * z)) / z**3).mean(axis=1).real
    f2 = h * ((2 + z + np.exp(z) * (z - 2)) / z**3).mean(axis=1).real
    f3 = h * ((-4 - 3 * z - z * z + np.exp(z) * (4 - z)) / z**3).mean(axis=1).real
    derivative = -0.5j * k
    derivative[-1] = 0

    def nonlinear(v):
        return derivative * np.fft.rfft(np.fft.irfft(v, points) ** 2)

    x = np.arange(points) * length / points
    u = np.cos(2 * np.pi * x / length) * (1 + np.sin(2 * np.pi * x / length))
    v, out = np.fft.rfft(u + 0.1 * rng.standard_normal(points)), []
    for number in range(2000 + 5 * count):
        if number >= 2000 and number % 5 == 0:
            out.append(np.fft.irfft(v, points))
        n0 = nonlinear(v)
        a = half * v + q * n0
        n1 = nonlinear(a)
        b = half * v + q * n1
        n2 = nonlinear(b)
        n3 = nonlinear(half * a + q * (2 * n2 - n0))
        v = whole * v + n0 * f1 + 2 * (n1 + n2) * f2 + n3 * f3
    return np.array(out)


def mackey_glass(count: int = 2500, seed: int = 0, points: int = 8, every: int = 30):
    """Return a ring of delay equations (count, x) whose feedback is no polynomial, step 3.

    dx/dt = 0.2 y / (1 + y^10) - 0.1 x + 0.02 (left - x), y = x(t - 17), by the midpoint rule.

    Source:
        Mackey & Glass 1977, doi:10.1126/science.267326.
    """
    delay, h, skip = 170, 0.1, 6000
    x = np.empty((skip + count * every, points))
    x[: delay + 1] = 1.2 + 0.3 * np.random.default_rng(seed).standard_normal(points)
    feedback = 0.2 * x / (1 + x**10)
    for n in range(delay, len(x) - 1):
        feedback[n - delay + 1] = 0.2 * x[n - delay + 1] / (1 + x[n - delay + 1] ** 10)
        middle = (feedback[n - delay] + feedback[n - delay + 1]) / 2
        half = x[n] + h / 2 * (feedback[n - delay] - 0.1 * x[n] + 0.02 * (np.roll(x[n], 1) - x[n]))
        x[n + 1] = x[n] + h * (middle - 0.1 * half + 0.02 * (np.roll(half, 1) - half))
    return x[skip::every]


def waves(count: int = 1200, seed: int = 0, noise: float = 0.2):
    """Return three travelling waves under noise, (count, y, x)."""
    return _travelling(count, ((1, 0.21, 1.0), (2, 0.57, 0.7), (3, 0.93, 0.5)), noise, seed)


def gusts(count: int = 2000, seed: int = 0):
    """Return travelling waves whose noise grows and fades with the first one's phase."""
    noise = 0.25 + 0.2 * np.cos(0.11 * np.arange(count)[:, None, None] + 1.0)
    return _travelling(count, ((1, 0.11, 1.0), (2, 0.37, 0.7)), noise, seed)


def _travelling(count: int, parts, noise, seed: int):
    x, y = patterns()
    t = np.arange(count)[:, None, None]
    field = sum(a * np.cos(k * x - w * t) * np.cos(0.3 * k * y) for k, w, a in parts)
    return field + noise * np.random.default_rng(seed).standard_normal(field.shape)
