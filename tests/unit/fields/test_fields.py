"""Padding of periodic dims and spectra, against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scitoolkit.emulation.metrics import spectrum
from scitoolkit.fields import decades_apart, line_power, wrapped
from scitoolkit.forecasting.scores import spectral_error


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("width", [0, 1, 2, 3, 5, 7, 11])
@pytest.mark.parametrize("dim", [0, 1, 2, -1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
def test_entries_beyond_an_end_are_those_of_the_other_end(size, width, dim, dtype):
    shape = [3, 4, 2]
    shape[dim] = size
    x = torch.arange(int(np.prod(shape))).reshape(shape).to(dtype)
    index = torch.arange(-width, size + width) % size
    out = wrapped(x, dim, width)
    assert out.dtype == dtype
    assert torch.equal(out, x.index_select(dim, index))


def test_gradients_of_repeated_entries_add_up():
    x = torch.ones(3, requires_grad=True)
    wrapped(x, 0, 4).sum().backward()
    assert x.grad.tolist() == np.bincount(np.arange(-4, 7) % 3).tolist()


@pytest.mark.parametrize("shape", [(7,), (8,), (1,), (2,), (3, 6), (4, 5, 2), (2, 1, 9)])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i2"])
def test_powers_sum_to_the_mean_square_of_each_line(shape, dtype):
    values = (100 * np.random.default_rng(0).standard_normal(shape)).astype(dtype)
    for axis in range(-1, len(shape)):
        power = line_power(values, axis)
        assert power.dtype == np.float64
        assert power.shape[axis] == shape[axis] // 2 + 1
        mean = np.mean(values.astype(float) ** 2, axis)
        np.testing.assert_allclose(power.sum(axis), mean, rtol=1e-12)
    np.testing.assert_allclose(spectrum(values, 0).sum(), np.mean(values.astype(float) ** 2))


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e9])
@pytest.mark.parametrize("decades", [0.0, 0.3, 2.0])
def test_the_distance_of_spectra_does_not_depend_on_the_unit(unit, decades):
    truth = unit**2 * np.array([50.0, 9.0, 1.0, 1e-3, 1e-31])
    other = truth * 10**decades * np.array([1e6, 1, 1, 1, 1])
    assert decades_apart(truth, other, slice(1, 4)) == pytest.approx(decades, abs=1e-8)
    # The last wave has less than the least power that counts in either.
    whole = decades_apart(truth, other)
    assert whole == pytest.approx(decades * np.sqrt(3 / 4), abs=1e-6)


def test_fields_without_waves_are_equal_to_each_other_only():
    flat, waves = np.array([3.0, 0.0, 0.0]), np.array([3.0, 1.0, 1.0])
    assert decades_apart(flat, flat) == 0
    assert decades_apart(flat, waves) > 100
    assert decades_apart(waves, flat) == pytest.approx(24)
    assert np.isnan(decades_apart(waves, np.array([0.0, np.nan, 1.0])))


def test_forecasts_and_fields_are_scored_alike():
    truth = np.random.default_rng(0).normal(size=(5, 1, 64))
    powers = (line_power(v[:, -1], -1).mean(0) for v in (truth, 0.1 * truth))
    assert spectral_error(truth, 0.1 * truth, (64,)) == decades_apart(*powers)
