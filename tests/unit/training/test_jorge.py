"""Jorge's inverse root against the exact one."""

import pytest
import torch
from torch import nn

from scitoolkit.training.optim.jorge import JorgeDescent, refreshed_root


def fourth_root_inverse(matrix):
    values, vectors = torch.linalg.eigh(matrix)
    return (vectors * values**-0.25) @ vectors.T


def test_refreshed_root_is_the_inverse_fourth_root_to_second_order():
    generator = torch.Generator().manual_seed(0)
    basis, _ = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64, generator=generator))
    average = (basis * torch.linspace(0.5, 4, 6, dtype=torch.float64)) @ basis.T
    gram = (basis * torch.linspace(3, 0, 6, dtype=torch.float64)) @ basis.T
    gradient = (basis * torch.linspace(3, 0, 6, dtype=torch.float64).sqrt()) @ basis.T
    root = fourth_root_inverse(average)
    errors = []
    for kept in (0.9, 0.99):
        wanted = fourth_root_inverse(kept * average + (1 - kept) * gram)
        found = refreshed_root(root, gradient, floor=kept)
        assert torch.equal(found, found.T)
        errors.append(float((found - wanted).norm() / wanted.norm()))
    # The next term of the binomial series of (1 + x)^-1/4; x <= 6 (1 - kept) / kept here.
    assert errors[1] <= 15 / 128 * (6 / 99) ** 3
    assert errors[0] / errors[1] >= 500


def test_refreshed_root_of_matrices_that_do_not_commute_is_close():
    generator = torch.Generator().manual_seed(0)
    first, second = torch.randn(2, 6, 9, dtype=torch.float64, generator=generator)
    average = first @ first.T / 9 + torch.eye(6, dtype=torch.float64)
    gram = second @ second.T / 9
    wanted = fourth_root_inverse(0.99 * average + 0.01 * gram)
    found = refreshed_root(fourth_root_inverse(average), second / 3, floor=0.99)
    unchanged = (fourth_root_inverse(average) - wanted).norm()
    assert (found - wanted).norm() <= 0.05 * unchanged


@pytest.mark.parametrize("zeros", [1, 60])
def test_gradients_that_are_zero_leave_the_preconditioner_alone(zeros):
    generator = torch.Generator().manual_seed(0)
    weights = [nn.Parameter(torch.ones(8, 5)) for _ in range(2)]
    gradients = 1e-2 * torch.randn(5, 8, 5, generator=generator)
    for weight, first in zip(weights, (zeros, 0), strict=True):
        optimizer = JorgeDescent([weight], lr=0.1, momentum=0.0)
        for gradient in [*torch.zeros(first, 8, 5), *gradients]:
            weight.grad = gradient.clone()
            optimizer.step()
    assert torch.equal(*weights)


def test_a_zero_gradient_leaves_the_root_unchanged():
    root = torch.diag(torch.tensor([1.0, 2.0]))
    assert torch.equal(refreshed_root(root, torch.zeros(2, 2)), root)


@pytest.mark.parametrize("size", [1e-6, 1e20, 1e30])
def test_steps_do_not_depend_on_the_size_of_gradients(size):
    generator = torch.Generator().manual_seed(0)
    gradients = torch.randn(20, 8, 5, generator=generator)
    weights = [nn.Parameter(torch.zeros(8, 5)) for _ in range(2)]
    for weight, scale in zip(weights, (1.0, size), strict=True):
        optimizer = JorgeDescent([weight], lr=0.1 / scale)
        for gradient in gradients:
            weight.grad = scale * gradient
            optimizer.step()
    torch.testing.assert_close(*weights, rtol=1e-4, atol=1e-4)


def test_gradients_that_grow_by_many_orders_of_magnitude_give_finite_steps():
    weight = nn.Parameter(torch.zeros(8, 5))
    optimizer = JorgeDescent([weight], lr=0.1)
    for exponent in range(0, 31, 5):
        weight.grad = torch.randn(8, 5) * 10.0**exponent
        optimizer.step()
    assert all(
        value.isfinite().all()
        for value in (weight, *optimizer.state[weight].values())
        if isinstance(value, torch.Tensor)
    )
