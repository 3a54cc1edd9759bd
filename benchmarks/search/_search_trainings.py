"""Trainings with searchable settings in NumPy: reservoir, perceptron, boosted trees, kernels.

All take a fraction of a second and run in the environment of any peer. The objective is the RMSE
on a validation part in standard deviations of the series, and 2 for trainings that diverge. The
seed determines the start of the series and the initial weights, so that every search has another
optimum.
"""

from __future__ import annotations

import functools
from itertools import pairwise

import numpy as np

DIVERGED = 2.0
TRAIN, VALIDATION, WASHOUT = 1200, 400, 100


@functools.cache
def mackey_glass(seed: int) -> np.ndarray:
    """Return one standardised coordinate of the delay equation, sampled once a unit of time."""
    rng, step, delay = np.random.default_rng([11, seed]), 0.1, 170
    u = np.empty(delay + 10 * (TRAIN + VALIDATION + 500) + 1)
    u[: delay + 1] = 1.1 + 0.2 * rng.standard_normal()
    for i in range(delay, len(u) - 1):
        late = u[i - delay]
        u[i + 1] = u[i] + step * (0.2 * late / (1 + late**10) - 0.1 * u[i])
    kept = u[-10 * (TRAIN + VALIDATION) :: 10]
    return (kept - kept.mean()) / kept.std()


def reservoir(values, seed: int) -> float:
    """Return the error eight steps on of a leaky reservoir with a ridge read-out."""
    radius, leak, scale, ridge, units, bias = values
    u, rng, ahead = mackey_glass(seed), np.random.default_rng([13, seed]), 8
    weights = rng.standard_normal((units, units)) * (rng.random((units, units)) < 0.1)
    weights *= radius / max(np.abs(np.linalg.eigvals(weights)).max(), 1e-6)
    into, offset = scale * rng.uniform(-1, 1, units), bias * rng.uniform(-1, 1, units)
    state, states = np.zeros(units), np.empty((len(u) - ahead, units))
    for i in range(len(states)):
        state = (1 - leak) * state + leak * np.tanh(weights @ state + into * u[i] + offset)
        states[i] = state
    design = np.c_[states, u[: len(states)], np.ones(len(states))]
    fit, test = slice(WASHOUT, TRAIN), slice(TRAIN, None)
    a, target = design[fit], u[ahead:]
    gram = a.T @ a / len(a) + ridge * np.eye(a.shape[1])
    found = np.linalg.solve(gram, a.T @ target[fit] / len(a))
    return _bounded(design[test] @ found - target[test])


@functools.cache
def lorenz96(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return standardised windows of five neighbours and the increment of the middle one in .1."""
    rng, points, step = np.random.default_rng([17, seed]), 20, 0.025

    def slope(z):
        return (np.roll(z, -1) - np.roll(z, 2)) * np.roll(z, 1) - z + 8

    z, kept = 8 + rng.standard_normal(points), []
    for i in range(4 * 180):
        a = slope(z)
        b = slope(z + step / 2 * a)
        c = slope(z + step / 2 * b)
        z = z + step / 6 * (a + 2 * b + 2 * c + slope(z + step * c))
        if i >= 4 * 80 and i % 4 == 0:
            kept.append(z)
    kept = np.array(kept)
    x = np.stack([np.roll(kept[:-1], k, axis=1) for k in (2, 1, 0, -1, -2)], -1).reshape(-1, 5)
    y = np.diff(kept, axis=0).reshape(-1)
    order = rng.permutation(len(x))
    return ((x - x.mean(0)) / x.std(0))[order], ((y - y.mean()) / y.std())[order]


def perceptron(values, seed: int) -> float:
    """Return the error of a perceptron of two hidden layers after 300 steps of Adam."""
    rate, decay, width, batch, momentum, activation, schedule = values
    x, y = lorenz96(seed)
    x, y, held, wanted = x[:TRAIN], y[:TRAIN], x[TRAIN:], y[TRAIN:]
    rng, sizes, steps = np.random.default_rng([19, seed]), (5, width, width, 1), 300
    weights = [rng.standard_normal((a, b)) / np.sqrt(a) for a, b in pairwise(sizes)]
    weights += [np.zeros(b) for b in sizes[1:]]
    first, second = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    act, slope = (
        (np.tanh, lambda h: 1 - h * h),
        (lambda a: np.maximum(a, 0), lambda h: (h > 0).astype(float)),
    )[activation]

    def hidden(x):
        h = act(x @ weights[0] + weights[3])
        return h, act(h @ weights[1] + weights[4])

    with np.errstate(all="ignore"):
        for step in range(1, steps + 1):
            rows = rng.integers(0, len(x), batch)
            h, k = hidden(x[rows])
            error = (k @ weights[2] + weights[5])[:, 0] - y[rows]
            last = 2 * error[:, None] / batch
            upper = last @ weights[2].T * slope(k)
            lower = upper @ weights[1].T * slope(h)
            gradients = [
                x[rows].T @ lower,
                h.T @ upper,
                k.T @ last,
                lower.sum(0),
                upper.sum(0),
                last.sum(0),
            ]
            now = rate * (1, 1 - step / steps, 0.5 * (1 + np.cos(np.pi * step / steps)))[schedule]
            for w, g, m, v in zip(weights, gradients, first, second, strict=True):
                m += (1 - momentum) * (g - m)
                v += 0.001 * (g * g - v)
                size = np.sqrt(v / (1 - 0.999**step)) + 1e-8
                w -= now * (m / (1 - momentum**step) / size + decay * w)
        _, k = hidden(held)
        return _bounded((k @ weights[2] + weights[5])[:, 0] - wanted)


def boosted_trees(values, seed: int) -> float:
    """Return the error of gradient boosting with trees of few leaves (Friedman 2001)."""
    rate, count, depth, share, least = values
    x, y = lorenz96(seed)
    x, y, held, wanted = x[:TRAIN], y[:TRAIN], x[TRAIN:], y[TRAIN:]
    rng = np.random.default_rng([29, seed])
    cuts = np.quantile(x, np.linspace(0.05, 0.95, 16), axis=0)
    fitted, forecast = np.zeros(len(y)), np.zeros(len(wanted))
    for _ in range(count):
        rows = rng.random(len(y)) < share
        leaves = [(rows, np.ones(len(y), bool), np.ones(len(wanted), bool))]
        for _ in range(depth):
            leaves = [
                part for leaf in leaves for part in _split(leaf, x, y - fitted, held, cuts, least)
            ]
        for rows, own, others in leaves:
            value = rate * (y - fitted)[rows].mean() if rows.any() else 0.0
            fitted[own] += value
            forecast[others] += value
    return _bounded(forecast - wanted)


def _split(leaf, x, residual, held, cuts, least):
    """Return the two leaves of the cut that lowers the squares most, or the leaf."""
    rows, own, others = leaf
    best, where = 0.0, None
    total, number = residual[rows].sum(), rows.sum()
    for column in range(x.shape[1]):
        below = x[rows, column][:, None] <= cuts[:, column]
        left, sums = below.sum(axis=0), residual[rows] @ below
        sound = (left >= least) & (number - left >= least)
        if not sound.any():
            continue
        right = np.maximum(number - left, 1)
        gain = np.where(sound, sums**2 / np.maximum(left, 1) + (total - sums) ** 2 / right, 0.0)
        if gain.max() > best:
            best, where = gain.max(), (column, cuts[gain.argmax(), column])
    if where is None or best <= total**2 / max(number, 1):
        return [leaf]
    a, b = x[:, where[0]] <= where[1], held[:, where[0]] <= where[1]
    return [(rows & a, own & a, others & b), (rows & ~a, own & ~a, others & ~b)]


def kernel_ridge(values, seed: int) -> float:
    """Return the error of kernel regression on some centres (Williams and Seeger 2001)."""
    length, ridge, centres, kernel, linear = values
    x, y = lorenz96(seed)
    at = x[np.random.default_rng([31, seed]).permutation(TRAIN)[:centres]]

    def features(points):
        squares = ((points[:, None] - at) ** 2).sum(axis=2) / length**2
        root = np.sqrt(squares)
        made = (
            np.exp(-squares / 2),
            np.exp(-root),
            (1 + np.sqrt(5) * root + 5 / 3 * squares) * np.exp(-np.sqrt(5) * root),
            1 / (1 + squares),
        )[kernel]
        return np.c_[made, points * linear, np.ones(len(points))]

    a = features(x[:TRAIN])
    gram = a.T @ a / len(a) + ridge * np.eye(a.shape[1])
    solution = np.linalg.lstsq(gram, a.T @ y[:TRAIN] / len(a), rcond=None)[0]
    return _bounded(features(x[TRAIN:]) @ solution - y[TRAIN:])


def _bounded(error: np.ndarray) -> float:
    value = float(np.sqrt(np.mean(error * error)))
    return min(value, DIVERGED) if np.isfinite(value) else DIVERGED


# As the functions of search_quality: (kind, low, high, log) or ("choice", values)
TRAININGS = {
    "reservoir": (
        reservoir,
        [
            ("real", 0.05, 1.6, False),
            ("real", 0.05, 1.0, False),
            ("real", 0.01, 10.0, True),
            ("real", 1e-10, 1.0, True),
            ("integer", 20, 120, True),
            ("real", 0.0, 2.0, False),
        ],
    ),
    "perceptron": (
        perceptron,
        [
            ("real", 1e-5, 1.0, True),
            ("real", 1e-7, 1.0, True),
            ("integer", 4, 64, True),
            ("integer", 8, 128, True),
            ("real", 0.0, 0.99, False),
            ("choice", [0, 1]),
            ("choice", [0, 1, 2]),
        ],
    ),
}
FURTHER = {
    "boosted_trees": (
        boosted_trees,
        [
            ("real", 0.005, 1.0, True),
            ("integer", 5, 80, True),
            ("integer", 1, 4, False),
            ("real", 0.2, 1.0, False),
            ("integer", 1, 60, True),
        ],
    ),
    "kernel_ridge": (
        kernel_ridge,
        [
            ("real", 0.1, 30.0, True),
            ("real", 1e-12, 1.0, True),
            ("integer", 10, 300, True),
            ("choice", [0, 1, 2, 3]),
            ("choice", [0, 1]),
        ],
    ),
}
