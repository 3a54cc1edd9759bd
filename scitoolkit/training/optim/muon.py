"""Muon: momentum with orthogonalised updates of matrices.

All singular values of an update are close to one, so all directions of a layer are trained at the
same rate. This needs fewer steps than Adam, at the cost of some matrix products per step.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from scitoolkit.training.optim.trained import trained_groups

_COEFFICIENTS = (3.4445, -4.7750, 2.0315)
_MIN_SIDE = 16


@torch.no_grad()
def orthogonalize(matrix: Tensor, steps: int = 5) -> Tensor:
    """Return a matrix with the same singular vectors and singular values close to 1.

    Args:
        matrix: (rows, columns).
        steps: Newton-Schulz iterations with quintic coefficients that reach 0.7 to 1.2 quickly.

    Source: Jordan et al. 2024, https://kellerjordan.github.io/posts/muon.

    Example:
        >>> values = torch.linalg.svdvals(orthogonalize(torch.randn(8, 20)))
        >>> bool((values > 0.3).all() and (values < 1.5).all())
        True
    """
    a, b, c = _COEFFICIENTS
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / x.abs().max().clamp(min=1)  # the squares in a norm of large entries overflow
    x = x / (x.norm() + 1e-7)
    for _ in range(steps):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    return x.T if tall else x


class MuonAdam(Optimizer):
    """Optimizer that uses Muon for matrices and convolutions, and Adam for all others.

    A convolution is treated as the matrix (outputs, inputs x kernel). Matrices with a side shorter
    than 16, such as the last layer of a network with few outputs, are trained by Adam.

    Args:
        parameters: trainable parameters.
        lr: learning rate of Adam; Muon uses `matrix_ratio` times it.
        matrix_ratio: a Muon step changes a weight by about lr * matrix_ratio / sqrt(inputs).
        momentum: momentum of Muon.
        betas: decay rates of Adam's averages.
        weight_decay: decoupled weight decay of the matrices.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float,
        *,
        matrix_ratio: float = 10.0,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.01,
    ) -> None:
        defaults = {
            "lr": lr,
            "matrix_ratio": matrix_ratio,
            "momentum": momentum,
            "betas": betas,
            "weight_decay": weight_decay,
        }
        super().__init__(parameters, defaults)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Run one step; parameters without a gradient are skipped."""
        for group, trained, gradients in trained_groups(self):
            for parameter, gradient in zip(trained, gradients, strict=True):
                move = self._muon if is_matrix(parameter) else self._adam
                move(parameter, gradient, group)

    def _muon(self, parameter: Tensor, gradient: Tensor, group: dict) -> None:
        state, beta = self.state[parameter], group["momentum"]
        mean = state.setdefault("mean", torch.zeros_like(parameter))
        mean.lerp_(gradient, 1 - beta)
        ahead = torch.lerp(gradient, mean, beta)
        rows, columns = parameter.shape[0], parameter[0].numel()
        update = orthogonalize(ahead.flatten(1)).view_as(parameter)
        rate = group["lr"] * group["matrix_ratio"]
        parameter.mul_(1 - rate * group["weight_decay"])
        parameter.add_(update, alpha=-rate * max(1.0, rows / columns) ** 0.5)

    def _adam(self, parameter: Tensor, gradient: Tensor, group: dict) -> None:
        state, (first, second) = self.state[parameter], group["betas"]
        mean = state.setdefault("mean", torch.zeros_like(parameter))
        square = state.setdefault("square", torch.zeros_like(parameter))
        state["step"] = step = state.get("step", 0) + 1
        mean.lerp_(gradient, 1 - first)
        square.mul_(second).addcmul_(gradient, gradient, value=1 - second)
        size = (square / (1 - second**step)).sqrt_().add_(1e-8)
        parameter.addcdiv_(mean, size, value=-group["lr"] / (1 - first**step))


def is_matrix(parameter: Tensor) -> bool:
    """Return whether a parameter is trained by Muon and not by Adam."""
    rows, *others = parameter.shape or (1,)
    return bool(others) and min(rows, math.prod(others)) >= _MIN_SIDE
