"""Block coordinate descent of a read-out with unrolled steps: equal iterates, fewer messages.

Features are those of a reservoir-like random map of a Lorenz trajectory, with singular values over
several orders of magnitude, divided among four ranks (threads that count their messages).
`iterate_difference` is the largest relative difference of the weights between s = 1 and s = 4, 16
and 64; `message_ratio` the messages of s = 16 over those of s = 1.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

RANKS, FEATURES, SAMPLES, BLOCK, STEPS = 4, 200, 1600, 8, 320
UNROLLED = (1, 4, 16, 64)


def data():
    """Return tanh features of a Lorenz-63 state, and the state one step later."""
    import numpy as np

    generator = np.random.default_rng(1)
    state, states = np.array([1.0, 1.0, 20.0]), []
    for _ in range(SAMPLES + 201):
        x, y, z = state
        state = state + 0.01 * np.array([10 * (y - x), x * (28 - z) - y, x * y - 8 / 3 * z])
        states.append(state)
    path = np.array(states[200:])
    path = (path - path.mean(0)) / path.std(0)
    inside = path[:-1] @ generator.normal(size=(3, FEATURES)) + generator.normal(size=FEATURES)
    return np.tanh(inside), path[1:]


def spread(features, targets, unrolled: int):
    """Fit over the ranks; return rank 0's read-out and the wall seconds."""
    from scitoolkit.training.read_out import fit_read_out

    barrier, posted = threading.Barrier(RANKS), [None] * RANKS
    size = SAMPLES // RANKS

    def fitted(rank: int):
        def total(sums):
            posted[rank] = sums
            barrier.wait()
            out = sum(posted)
            barrier.wait()
            return out

        rows = slice(rank * size, (rank + 1) * size)
        return fit_read_out(
            features[rows],
            targets[rows],
            1e-3,
            block=BLOCK,
            steps=STEPS,
            unrolled=unrolled,
            total=total,
        )

    begun = time.perf_counter()
    with ThreadPoolExecutor(RANKS) as pool:
        found = list(pool.map(fitted, range(RANKS)))
    return found[0], time.perf_counter() - begun


def run() -> dict:
    import numpy as np
    from _measure import machine

    features, targets = data()
    found = {s: spread(features, targets, s) for s in UNROLLED}
    one = found[1][0]
    rows = {}
    for s, (read_out, _) in found.items():
        error = np.linalg.norm(read_out.weights - one.weights) / np.linalg.norm(one.weights)
        rows[str(s)] = {
            "messages": read_out.messages,
            "numbers_per_message": read_out.numbers / read_out.messages,
            "iterate_difference": float(error),
        }
    residual = np.linalg.norm(features @ one.weights - targets) / np.linalg.norm(targets)
    return {
        "iterate_difference": max(row["iterate_difference"] for row in rows.values()),
        "message_ratio": rows["16"]["messages"] / rows["1"]["messages"],
        "relative_residual": float(residual),
        "unrolled": rows,
        **machine(),
    }
