"""The envelope of radial bases: one at zero, and smooth where the cutoff ends it."""

import pytest
import torch

from scitoolkit.potentials.equivariant.radial_functions import polynomial_cutoff


@pytest.mark.parametrize("power", [2, 5, 6])
def test_the_cutoff_ends_with_two_derivatives(power):
    u = torch.tensor([0.0, 1.0 - 1e-9, 1.0, 1.5], dtype=torch.float64, requires_grad=True)
    value = polynomial_cutoff(u, power)
    (slope,) = torch.autograd.grad(value.sum(), u, create_graph=True)
    (curve,) = torch.autograd.grad(slope.sum(), u)
    assert value[0] == 1.0
    for derivative in (value, slope, curve):
        assert derivative[1:].abs().max() < 1e-5
