"""Rounded weights: values beyond the range of float16 are not turned into infinities."""

import pytest
import torch

from scitoolkit.training.rounded_weights import restored, rounded


@pytest.mark.parametrize("dtype", ["float16", "int8"])
def test_values_beyond_float16_stay_float32(dtype):
    state = {"large": torch.tensor([1e5, 1.0]), "small": torch.tensor([0.5, 1.0])}
    small = rounded(state, state, dtype)
    assert small["large"].dtype == torch.float32
    assert small["small"].dtype == torch.float16
    assert all(torch.equal(restored(small)[name].float(), state[name]) for name in state)
