"""LAMB, LARS and Jorge against their formulas written out."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from scitoolkit.training.optim.jorge import JorgeDescent, refreshed_root
from scitoolkit.training.optim.layerwise import Lamb, Lars


def trained(make, shapes, steps=3):
    """Return parameters after steps with given gradients, and those gradients."""
    torch.manual_seed(0)
    parameters = [nn.Parameter(torch.randn(shape, dtype=torch.float64)) for shape in shapes]
    start = [p.detach().clone() for p in parameters]
    optimizer, gradients = make(parameters), []
    for _ in range(steps):
        gradients.append([torch.randn_like(p) for p in parameters])
        for parameter, gradient in zip(parameters, gradients[-1], strict=True):
            parameter.grad = gradient.clone()
        optimizer.step()
    return start, gradients, [p.detach() for p in parameters]


def test_lamb_follows_its_formula():
    start, gradients, end = trained(lambda p: Lamb(p, lr=0.1, weight_decay=0.3), [(5, 3), (4,)])
    for index, weight in enumerate(start):
        mean = square = torch.zeros_like(weight)
        for number, gradient in enumerate(g[index] for g in gradients):
            mean = 0.9 * mean + 0.1 * gradient
            square = 0.999 * square + 0.001 * gradient**2
            step = mean / (1 - 0.9 ** (number + 1))
            step = step / ((square / (1 - 0.999 ** (number + 1))).sqrt() + 1e-6) + 0.3 * weight
            ratio = weight.norm() / step.norm() if weight.dim() > 1 else 1.0
            weight = weight - 0.1 * ratio * step
        torch.testing.assert_close(end[index], weight, rtol=1e-10, atol=1e-12)


def test_lars_follows_its_formula():
    def make(parameters):
        return Lars(parameters, lr=0.5, trust=0.02, weight_decay=0.3)

    start, gradients, end = trained(make, [(5, 3), (4,)])
    for index, weight in enumerate(start):
        move = torch.zeros_like(weight)
        for gradient in (g[index] for g in gradients):
            rate = 0.02 * weight.norm() / (gradient.norm() + 0.3 * weight.norm())
            rate = rate if weight.dim() > 1 else 1.0
            move = 0.9 * move + 0.5 * rate * (gradient + 0.3 * weight)
            weight = weight - move
        torch.testing.assert_close(end[index], weight, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("make", [Lamb, Lars])
def test_weights_and_gradients_of_zero_are_no_nan(make):
    for gradient in (torch.zeros(3, 2), torch.ones(3, 2)):
        weight = nn.Parameter(torch.zeros(3, 2))
        weight.grad = gradient
        make([weight], lr=0.1).step()
        assert torch.isfinite(weight).all()


def test_the_root_stays_symmetric_and_positive_and_preconditions():
    torch.manual_seed(0)
    base = torch.randn(24, 24, dtype=torch.float64) @ torch.diag(torch.logspace(0, -2, 24).double())
    true = base @ base.T
    root = torch.eye(24, dtype=torch.float64) * (true.trace() / 24) ** -0.25
    for _ in range(300):
        gradient = base @ torch.randn(24, 32, dtype=torch.float64) / 32**0.5
        root = refreshed_root(root, gradient @ gradient.T)
        assert torch.equal(root, root.T)
    assert torch.linalg.eigvalsh(root).min() > 0
    before, after = (torch.linalg.cond(m) for m in (true, root @ root @ true @ root @ root))
    assert after < before / 100


def test_jorge_reaches_a_badly_scaled_minimum_where_momentum_at_its_rate_does_not():
    def loss_after(make):
        torch.manual_seed(0)
        scales = torch.logspace(-1.5, 0, 16)
        inputs = torch.randn(128, 16) * scales
        target = inputs @ torch.randn(16, 16).T
        weight = nn.Parameter(torch.zeros(16, 16))
        optimizer = make([weight])
        for _ in range(40):
            optimizer.zero_grad()
            loss = (inputs @ weight.T - target).square().mean()
            loss.backward()
            optimizer.step()
        return loss.item()

    momentum = loss_after(lambda p: torch.optim.SGD(p, lr=1.0, momentum=0.9))
    assert loss_after(lambda p: JorgeDescent(p, lr=1.0)) < 0.5 * momentum
