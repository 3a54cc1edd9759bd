"""Intervals of split-conformal prediction over groups: coverage, files, refusals."""

import numpy as np
import pytest
import xarray as xr

from scitoolkit.core.errors import CheckpointError, DataError
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.surrogate import intervals


def drawn(rng, groups, points=30, spread=1.0):
    """Return errors whose size differs by group, as those of trajectories do."""
    sizes = rng.lognormal(0, spread, (groups, 1))
    return xr.Dataset({"t": (("group", "point"), sizes * rng.standard_normal((groups, points)))})


@pytest.mark.parametrize(("groups", "coverage"), [(9, 0.9), (12, 0.8), (60, 0.9)])
def test_a_value_of_a_further_group_is_inside_with_the_coverage(groups, coverage):
    rng, shares = np.random.default_rng(0), []
    for _ in range(1500):
        half = intervals.calibrated(drawn(rng, groups), coverage)
        shares.append(float((abs(drawn(rng, 1)) <= half).t.mean()))
    error = np.std(shares) / np.sqrt(len(shares))
    # At least the coverage for any distribution; at most the mass of one group more.
    assert coverage - 3 * error < np.mean(shares) < coverage + 1 / (groups + 1) + 3 * error


def test_values_of_one_group_do_not_count_as_many():
    """The quantile of all values, as if they were independent, covers too little of new groups."""
    rng, naive, own = np.random.default_rng(1), [], []
    for _ in range(1500):
        errors, new = drawn(rng, 4, spread=2.0), abs(drawn(rng, 1, spread=2.0)).t
        naive.append(float((new <= abs(errors.t).quantile(0.8)).mean()))
        own.append(float((new <= intervals.calibrated(errors, 0.8).t).mean()))
    error = np.std(naive) / np.sqrt(len(naive))
    assert np.mean(naive) < 0.8 - 4 * error
    assert np.mean(own) > 0.8


def test_too_few_groups_have_no_finite_interval():
    intervals.require_enough(0.9, 9)
    with pytest.raises(DataError, match=r"at least 9 samples, or a coverage of at most 0\.889"):
        intervals.require_enough(0.9, 8)
    with pytest.raises(DataError, match="from 0 samples"):
        intervals.require_enough(0.5, 0)


def test_bounds_are_those_of_their_place_and_none_beyond_the_calibration(tmp_path):
    folder = ModelFolder(tmp_path)
    folder.path.mkdir(exist_ok=True)
    assert intervals.load(folder) is None
    errors = xr.Dataset(
        {"t": (("step", "group"), np.outer([1.0, 2.0], np.arange(1, 10)))}, {"step": [1, 2]}
    )
    intervals.save(intervals.calibrated(errors, 0.9), folder)
    half = intervals.load(folder)
    values = xr.DataArray(np.zeros((4, 3)), {"step": [1, 2, 3, 4]}, ("step", "node"), "t", {"u": 1})
    out = intervals.around(values.to_dataset(), half)
    np.testing.assert_array_equal(out.t_high[:, 0], [9, 18, np.nan, np.nan])
    np.testing.assert_array_equal(out.t_low, -out.t_high)
    assert out.t_high.dims == values.dims
    assert out.t_high.attrs == {"u": 1, "coverage": 0.9, "calibration_samples": 9}
    (folder.path / intervals.FILE).write_text("{")
    with pytest.raises(CheckpointError, match="intervals cannot be read"):
        intervals.load(folder)
