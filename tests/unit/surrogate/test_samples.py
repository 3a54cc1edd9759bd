"""The samples that a generator makes for a training are the same in files and in memory."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from scitoolkit.core.draw import DrawConfig, Prior
from scitoolkit.generators.lorenz96 import Lorenz96
from scitoolkit.surrogate.samples import ProducedSamples


@pytest.fixture
def samples(tmp_path):
    """Five samples of six numbers each, of which two are held out."""
    draw = DrawConfig(samples=3, parameters={"forcing": Prior(low=2, high=4)})
    return ProducedSamples(
        Lorenz96(points=6, frames=1, spinup=0), draw, 2, seed=1, folder=tmp_path / "made"
    )


def test_files_have_the_names_that_are_stated_before_they_exist(samples):
    assert samples.total == 5
    assert samples.stored() == 0
    assert samples.files(2) == samples.paths(2)
    assert samples.stored() == 2
    # A lost file before the last is made again, and is no smaller number of samples.
    samples.paths(2)[0].unlink()
    assert samples.stored() == 2
    assert all(path.is_file() for path in samples.files(2))


def test_a_streamed_sample_is_that_of_the_file(samples):
    files = samples.files(samples.total)
    stream = samples.stream(
        sample_dim="time",
        fields={"u": ("x",)},
        parameters={"forcing": "linear"},
        shapes={"u": (1, 6), "forcing": (1,)},
        offset=2,
        journal=None,
        workers=0,
        ahead=1,
        timeout=60.0,
    )
    arrays = {"u": np.empty((1, 6), np.float32), "forcing": np.empty(1, np.float32)}
    for number in range(3):
        stream.order(number)
        stream.take(number, arrays)
        with xr.open_dataset(files[2 + number]) as stored:
            assert np.array_equal(stored["u"].values, arrays["u"])


def test_a_chosen_candidate_is_another_sample(samples):
    drawn = samples.files(2)[1].read_bytes()
    samples.choices = {1: 2}
    samples.paths(2)[1].unlink()
    assert samples.files(2)[1].read_bytes() != drawn
