"""Reference radial bases in plain torch: readable, differentiable to any order, slow."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from scitoolkit.ops.radial.spec import RadialSpec, envelope_coefficients


def _bessel(spec: RadialSpec, r: Tensor) -> Tensor:
    """Return sqrt(2/c) sin(n pi r/c) / r by the recursion of sin(n t)/t, without dividing by r."""
    theta = (math.pi / spec.cutoff) * r
    is_small = theta < 1  # here derivatives of the quotient sin(t)/t suffer from cancellation
    safe = torch.where(is_small, torch.ones_like(theta), theta)
    series = sum((-1) ** k * theta ** (2 * k) / math.factorial(2 * k + 1) for k in range(9))
    sinc = torch.where(is_small, series, safe.sin() / safe)
    values = [torch.zeros_like(r), sinc]
    for _ in range(spec.num_basis - 1):
        values.append(2 * theta.cos() * values[-1] - values[-2])
    return math.sqrt(2 / spec.cutoff) * math.pi / spec.cutoff * torch.stack(values[1:], dim=1)


def _gaussian(spec: RadialSpec, r: Tensor) -> Tensor:
    centers = torch.linspace(0, spec.cutoff, spec.num_basis, dtype=r.dtype, device=r.device)
    return torch.exp(spec.gaussian_exponent * (r[:, None] - centers).square())


def _chebyshev(spec: RadialSpec, r: Tensor) -> Tensor:
    t = 2 / spec.cutoff * r - 1
    values = [torch.ones_like(t), t]
    for _ in range(spec.num_basis - 2):
        values.append(2 * t * values[-1] - values[-2])
    return torch.stack(values[: spec.num_basis], dim=1)


FUNCTIONS = {"bessel": _bessel, "gaussian": _gaussian, "chebyshev": _chebyshev}


def radial_basis(spec: RadialSpec, r: Tensor) -> Tensor:
    """Return the basis functions times the cutoff function, shape (E, num_basis).

    Args:
        spec: kind and cutoff.
        r: distances, shape (E,).
    """
    inside = torch.where(r >= spec.cutoff, torch.full_like(r, spec.cutoff), r)
    u = inside / spec.cutoff
    polynomial = sum(a * u**k for k, a in enumerate(envelope_coefficients(spec.envelope)))
    return FUNCTIONS[spec.kind](spec, inside) * ((1 - u) ** 3 * polynomial)[:, None]
