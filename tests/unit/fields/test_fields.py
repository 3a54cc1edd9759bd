"""Padding of periodic dims and spectra, against their definitions."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scitoolkit.emulation.metrics import spectrum
from scitoolkit.fields import line_power, wrapped


@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("width", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_entries_beyond_an_end_are_those_of_the_other_end(size, width, dim):
    x = torch.randn(3, size, size)
    x = x[:size] if dim == 0 else x
    index = torch.arange(-width, size + width) % size
    assert torch.equal(wrapped(x, dim, width), x.index_select(dim, index))


@pytest.mark.parametrize("shape", [(7,), (8,), (3, 6), (4, 5, 2), (2, 1, 9)])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i2"])
def test_powers_sum_to_the_mean_square_of_each_line(shape, dtype):
    values = (100 * np.random.default_rng(0).standard_normal(shape)).astype(dtype)
    for axis in range(len(shape)):
        power = line_power(values, axis)
        assert power.dtype == np.float64
        assert power.shape[axis] == shape[axis] // 2 + 1
        mean = np.mean(values.astype(float) ** 2, axis)
        np.testing.assert_allclose(power.sum(axis), mean, rtol=1e-12)
        if not axis:
            np.testing.assert_allclose(spectrum(values, 0).sum(), mean.mean(), rtol=1e-12)
