"""Scaling of data-parallel training strategies, by `scitoolkit bench training --nproc 4`.

METG(50 %) under Task Bench's patterns, memory of a rank by class, bytes per step by collective, the
time of a step by phase, and the prediction for up to 4,096 ranks with its error at 2 and 4.
"""

from __future__ import annotations

import os
import tempfile

PROCESSES = 4


def run() -> dict:
    from _measure import machine

    from scitoolkit import api
    from scitoolkit.scaling.run import summary

    os.environ["OMP_NUM_THREADS"] = "1"
    with tempfile.TemporaryDirectory() as folder:
        _, figures = api.bench_training([f"processes={PROCESSES}"], folder)
    found = summary(figures)
    errors = found["prediction_error"].values()
    return {
        **{f"prediction_error_{n}": max(abs(e[str(n)]) for e in errors) for n in (2, PROCESSES)},
        **found,
        **machine(),
        "load": found["machine"]["load"],
    }
