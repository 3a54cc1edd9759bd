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
    assert rollout.survival == (
        "A rollout beyond the data is finite for 4 of 6 steps, but leaves the range of the truth, "
        "widened by half: u at step 3"
    )


def test_points_without_values_do_not_count():
    masked = Climate(("u",), {}, np.array([0.0, 2.0]), None)
    rollout = long_rollout([{"u": np.array([9.0, 0.5])}], masked, 1, {"u": (-1.0, 1.0)})
    assert rollout.departures == ""
    assert rollout.climate.mean("mean_u") == 0.5


def test_a_rollout_that_diverges_is_ended():
    taken = []

    def growing():
        for step in range(100):
            taken.append(step)
            yield {"u": np.full(4, 0.5 * 10.0**step), "v": np.full(4, 0.1)}

    rollout = long_rollout(growing(), climate(), 100, RANGES)
    assert len(taken) == 5  # 5000 is more than 1000 widths of 2 beyond 1
    assert (rollout.diverged, rollout.finite) == (5, 4)
    assert rollout.departures == "u at step 2"
    assert rollout.survival == (
        "A rollout beyond the data diverged at step 5 of 100, and was ended, after it left the "
        "range of the truth, widened by half: u at step 2"
    )
    assert len(rollout.climate.series["mean_u"]) == 4


def test_a_variable_that_rests_ends_no_rollout():
    rollout = long_rollout(frames(), climate(), 6, {"u": (0.0, 0.0), "v": (-1.0, 1.0)})
    assert (rollout.diverged, rollout.finite) == (0, 4)
