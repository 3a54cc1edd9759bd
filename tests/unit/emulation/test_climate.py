"""Statistics of rollouts beyond the data."""

from __future__ import annotations

import numpy as np

from scitoolkit.core.errors import NumericalError
from scitoolkit.emulation.climate import Climate, long_rollout

RANGES = {"u": (-1.0, 1.0), "v": (-1.0, 1.0)}


def frames():
    for value in (0.5, 0.9, 1.5, -3.0):
        yield {"u": np.full(4, value), "v": np.full(4, value / 10)}
    raise NumericalError("rollout: not finite")


def climate():
    return Climate(("u", "v"), {}, np.ones(4), None)


def test_a_rollout_names_the_first_step_outside_the_range():
    rollout = long_rollout(frames(), climate(), 6, RANGES)
    assert rollout.departures == "u at step 3"
    assert rollout.finite == 4


def test_points_without_values_do_not_count():
    masked = Climate(("u",), {}, np.array([0.0, 2.0]), None)
    rollout = long_rollout([{"u": np.array([9.0, 0.5])}], masked, 1, {"u": (-1.0, 1.0)})
    assert rollout.departures == ""
    assert rollout.climate.mean("mean_u") == 0.5
