"""Reference fitting network in plain torch: readable, differentiable, any device."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from scitoolkit.ops.fitting_network.spec import SAME, TWICE, FittingSpec, shortcut

Layer = tuple[Tensor, Tensor, Tensor | None]
"""Weight (in, out), bias (out,), and step (out,) or None, of one layer."""


def descriptor(moments: Tensor, axis: int) -> Tensor:
    """Return the flattened D[m, a] = sum_c T[m, c] T[a, c] of moments T (n, basis, 4)."""
    return (moments @ moments[:, :axis].transpose(1, 2)).flatten(1)


def energies(spec: FittingSpec, layers: Sequence[Layer], moments: Tensor) -> Tensor:
    """Return atomic energies (n,) of moments (n, basis, 4)."""
    h = descriptor(moments, spec.axis)
    for weight, bias, step in layers[:-1]:
        t = torch.tanh(h @ weight + bias)
        t = t if step is None else t * step
        kind = shortcut(*weight.shape)
        h = t + h if kind == SAME else t + torch.cat([h, h], dim=1) if kind == TWICE else t
    weight, bias, _ = layers[-1]
    return (h @ weight + bias).squeeze(1)


def network(
    spec: FittingSpec, layers: Sequence[Layer]
) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
    """Return a function from moments to energies and their derivatives."""

    def run(moments: Tensor) -> tuple[Tensor, Tensor]:
        with torch.enable_grad():
            moments = moments.detach().requires_grad_()
            energy = energies(spec, layers, moments)
            (cotangent,) = torch.autograd.grad(energy.sum(), moments)
        return energy.detach(), cotangent

    return run
