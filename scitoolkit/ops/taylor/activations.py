"""Activations and their derivatives of any order, in closed form.

Sources: recurrences of the logistic function (s' = s - s^2), of tanh (t' = 1 - t^2), and Hermite
polynomials for the normal density.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.suggest import nearest_name

Derivatives = Callable[[Tensor, int], list[Tensor]]


def derivatives(name: str, a: Tensor, order: int) -> list[Tensor]:
    """Return the value and derivatives [g(a), g'(a), ..., g^(order)(a)] of an activation g.

    Args:
        name: one of `names()`.
        a: argument of any shape.
        order: highest derivative.

    Raises:
        ConfigError: an unknown activation.

    Example:
        >>> g, g1, g2 = derivatives("tanh", torch.zeros(1), 2)
        >>> g.item(), g1.item(), abs(g2.item())
        (0.0, 1.0, 0.0)
    """
    if name not in _RULES:
        allowed = names()
        nearest = nearest_name(name, allowed) or ""
        raise ConfigError(f"activation {name!r}", allowed=", ".join(allowed), fix=nearest)
    return _RULES[name](a, order)


def names() -> list[str]:
    """Return the names of the supported activations."""
    return sorted(_RULES)


def smoothness(name: str) -> float:
    """Return the order of the highest nonzero derivative of an activation."""
    return 1 if name in ("relu", "leaky_relu") else math.inf


@functools.cache
def _polynomials(kind: str, order: int) -> list[list[float]]:
    """Return the polynomials P_k with g^(k) = P_k(g) for g' = g - g^2 or g' = 1 - g^2."""
    slope = [0.0, 1.0, -1.0] if kind == "logistic" else [1.0, 0.0, -1.0]
    out = [[0.0, 1.0]]
    for _ in range(order):
        last = out[-1]
        derivative = [k * c for k, c in enumerate(last)][1:]
        product = [0.0] * (len(derivative) + 2)
        for i, c in enumerate(derivative):
            for j, s in enumerate(slope):
                product[i + j] += c * s
        out.append(product)
    return out


def _horner(coefficients: list[float], x: Tensor) -> Tensor:
    out = torch.full_like(x, coefficients[-1])
    for c in reversed(coefficients[:-1]):
        out = out.mul_(x).add_(c) if not out.requires_grad else out * x + c
    return out


def _from(kind: str, value: Tensor, order: int) -> list[Tensor]:
    rest = [_horner(p, value) for p in _polynomials(kind, order)[1:]]
    return [value, *rest]


def _softplus(a: Tensor, order: int) -> list[Tensor]:
    # torch's softplus is linear above a threshold of 20, where the difference is below rounding.
    value = torch.nn.functional.softplus(a)
    return [value, *(_from("logistic", torch.sigmoid(a), order - 1) if order else [])]


def _sigmoid(a: Tensor, order: int) -> list[Tensor]:
    return _from("logistic", torch.sigmoid(a), order)


def _tanh(a: Tensor, order: int) -> list[Tensor]:
    return _from("tanh", torch.tanh(a), order)


def _sin(a: Tensor, order: int) -> list[Tensor]:
    s, c = torch.sin(a), torch.cos(a) if order else a
    cycle = [s, c, -s, -c] if order else [s]
    return [cycle[k % 4] for k in range(order + 1)]


def _silu(a: Tensor, order: int) -> list[Tensor]:
    s = _from("logistic", torch.sigmoid(a), order)
    return [a * s[0], *(a * s[k] + k * s[k - 1] for k in range(1, order + 1))]


def _gelu(a: Tensor, order: int) -> list[Tensor]:
    phi = torch.exp(-0.5 * a * a) / math.sqrt(2 * math.pi)
    normal = [0.5 * (1 + torch.erf(a / math.sqrt(2)))]
    hermite = [torch.ones_like(a), a]
    for k in range(order):
        normal.append((-1) ** k * hermite[k] * phi)
        hermite.append(a * hermite[-1] - (k + 1) * hermite[-2])
    return [a * normal[0], *(a * normal[k] + k * normal[k - 1] for k in range(1, order + 1))]


def _relu(a: Tensor, order: int) -> list[Tensor]:
    step = (a > 0).to(a)
    return [a * step, step, *(torch.zeros_like(a) for _ in range(order - 1))][: order + 1]


def _leaky_relu(a: Tensor, order: int) -> list[Tensor]:
    slope = torch.where(a > 0, 1.0, 0.01).to(a)
    return [a * slope, slope, *(torch.zeros_like(a) for _ in range(order - 1))][: order + 1]


def _identity(a: Tensor, order: int) -> list[Tensor]:
    rest = [torch.ones_like(a), *(torch.zeros_like(a) for _ in range(order - 1))]
    return [a, *rest][: order + 1]


def _rsqrt(a: Tensor, order: int) -> list[Tensor]:
    out = [torch.rsqrt(a)]
    for k in range(order):
        out.append(out[-1] * (-0.5 - k) / a)
    return out


_RULES: dict[str, Derivatives] = {
    "softplus": _softplus,
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "sin": _sin,
    "silu": _silu,
    "gelu": _gelu,
    "relu": _relu,
    "leaky_relu": _leaky_relu,
    "identity": _identity,
    "rsqrt": _rsqrt,
}
