"""Piecewise polynomials on a grid: exactness, both derivatives, what lies beyond, bad input."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.ops.interpolation import EquidistantGrid, Placement, piecewise_polynomial
from scitoolkit.ops.interpolation.grid import _matrices, _matrices_on

GRID = EquidistantGrid(5.0, 40)


def _derivatives(dtype, backend, width=13, edges=77):
    """Values, slopes, and the gradients of a loss of both, as force training asks for them."""
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(41, width, dtype=torch.float64, generator=generator).requires_grad_()
    distances = 5.3 * torch.rand(edges, dtype=torch.float64, generator=generator)
    distances.requires_grad_()
    place = Placement.build(GRID, distances)
    out = piecewise_polynomial(GRID.coefficients(values, dtype), place, backend=backend)
    probe = torch.sin(torch.arange(out.numel(), dtype=dtype)).reshape(out.shape).requires_grad_()
    (slope,) = torch.autograd.grad(out, distances, probe, create_graph=True)
    loss = (slope * torch.cos(torch.arange(edges, dtype=torch.float64))).sum()
    loss = loss + out.square().sum()
    return [out, slope, *torch.autograd.grad(loss, (values, distances, probe))]


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-13), (torch.float32, 1e-5)])
def test_kernel_equals_reference_in_all_derivatives(dtype, tolerance):
    got, want = _derivatives(dtype, "cpu"), _derivatives(torch.float64, "reference")
    for a, b in zip(got, want, strict=True):
        a, b = a.detach(), b.detach()
        assert float((a - b).abs().max() / b.abs().max()) <= tolerance


@settings(max_examples=25, deadline=None)
@given(power=st.integers(0, 7), r=st.floats(0, 4.999))
def test_polynomials_up_to_degree_7_are_exact(power, r):
    coefficients = GRID.coefficients(GRID.nodes()[:, None] ** power, torch.float64)
    distance = torch.tensor([r], dtype=torch.float64, requires_grad=True)
    out = piecewise_polynomial(coefficients, Placement.build(GRID, distance))
    (slope,) = torch.autograd.grad(out.sum(), distance)
    assert float(out.detach()) == pytest.approx(r**power, rel=1e-9, abs=1e-9)
    want = power * r ** (power - 1) if power else 0.0
    assert float(slope) == pytest.approx(want, rel=1e-7, abs=1e-7)


def test_error_falls_with_the_eighth_power_of_the_step():
    r = 5 * torch.rand(500, dtype=torch.float64)
    errors = []
    for intervals in (40, 80):
        grid = EquidistantGrid(5.0, intervals)
        a = grid.coefficients(torch.sin(3 * grid.nodes())[:, None], torch.float64)
        out = piecewise_polynomial(a, Placement.build(grid, r))
        errors.append(float((out[:, 0] - torch.sin(3 * r)).abs().max()))
    assert errors[1] < errors[0] / 100


def test_zero_beyond_the_end_with_zero_slope():
    coefficients = GRID.coefficients(torch.ones(41, 3, dtype=torch.float64), torch.float32)
    distance = torch.tensor([5.0, 9.0, 1e9], dtype=torch.float64, requires_grad=True)
    out = piecewise_polynomial(coefficients, Placement.build(GRID, distance))
    assert not out.any()
    assert not torch.autograd.grad(out.sum(), distance)[0].any()


def test_bits_do_not_depend_on_threads():
    found = []
    for threads in (1, 3):
        torch.set_num_threads(threads)
        found.append(_derivatives(torch.float32, "cpu", 40, 900))
    torch.set_num_threads(1)
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_wrong_input_is_named():
    with pytest.raises(ConfigError, match="a grid of 3 intervals"):
        EquidistantGrid(5.0, 3)
    with pytest.raises(DataError, match=r"expected values of shape \(41, W\) in float64"):
        GRID.coefficients(torch.ones(41, 2), torch.float32)
    place = Placement.build(GRID, torch.ones(2))
    with pytest.raises(DataError, match=r"expected coefficients of shape \(41, 8, W\)"):
        piecewise_polynomial(torch.ones(30, 8, 2), place)


def test_distances_of_another_shape_or_dtype_are_refused():
    for distances in (torch.ones(3, 1), torch.ones(3, dtype=torch.int64)):
        with pytest.raises(DataError, match="expected distances"):
            Placement.build(EquidistantGrid(2.0, 10), distances)


def test_a_table_first_made_in_inference_mode_can_be_trained_later():
    grid = EquidistantGrid(3.0, 9)
    _matrices.cache_clear()
    _matrices_on.cache_clear()
    with torch.inference_mode():
        grid.coefficients(torch.ones(10, 2, dtype=torch.float64), torch.float64)
    values = torch.ones(10, 2, dtype=torch.float64, requires_grad=True)
    grid.coefficients(values, torch.float64).sum().backward()
    assert values.grad is not None
