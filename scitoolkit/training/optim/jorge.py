"""Jorge: Shampoo with preconditioners that are updated by matrix products only.

Shampoo multiplies a gradient from both sides by inverse fourth roots of averages of G G' and G' G.
Jorge stores the roots and updates them by a truncated binomial series, without decompositions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from scitoolkit.training.optim.trained import trained_groups


@torch.no_grad()
def refreshed_root(root: Tensor, gradient: Tensor, floor: float = 0.0) -> Tensor:
    """Return the inverse fourth root of ``b root^-4 + (1 - b) G G'``, to second order.

    The binomial series of the published update is taken in Y = X^2 G G' X^2, which has the
    eigenvalues of the published X^4 G G' and is symmetric. The root therefore stays symmetric and
    positive, whereas the published form drifts and becomes indefinite when symmetrised.
    b = norm(Y) / (norm(Y) + 1) makes the series converge. The update is second order if G G' and X
    commute; otherwise, as in the publication, an error of first order in their commutator remains.
    A zero gradient leaves the root unchanged, because b, and with it the series, would degenerate.
    Y is computed as a scaled (X^2 G) (X^2 G)', because G G' overflows for entries above 1e19.

    Args:
        root: (n, n) symmetric positive matrix X.
        gradient: (n, m) matrix G.
        floor: lower limit of b, the weight of the previous average.

    Source: Singh et al. 2023, https://arxiv.org/abs/2310.12298, equations 6 to 9.

    Example:
        >>> root = refreshed_root(torch.eye(2), torch.diag(torch.tensor([1.0, 0.0])))
        >>> bool(root[0, 0] < root[1, 1])
        True
    """
    factor = root @ root @ gradient
    largest = factor.abs().max()
    factor = factor / largest
    series = factor @ factor.T
    size = series.norm()
    series, size = series / size, size * largest * largest
    natural, least = 1 / (1 + 1 / size), max(floor, 1e-3)
    retained = natural.clamp(min=least)
    # (1 - b) / b times the norm of Y; the size may be infinite where it is not limited.
    weight = torch.where(natural > least, 1.0, (1 - least) / least * size)
    first = root @ series
    out = root - (weight / 4) * first + (5 * weight * weight / 32) * (first @ series)
    out = (out + out.T) * (0.5 * retained**-0.25)
    return torch.where(size > 0, out, root)


class JorgeDescent(Optimizer):
    """Optimizer that uses Jorge for matrices and convolutions, and momentum for all others.

    A convolution is treated as the matrix (outputs, inputs x kernel). Step lengths are grafted from
    gradient descent with momentum, so its learning rates apply.

    Args:
        parameters: trainable parameters.
        lr: learning rate, as for gradient descent with momentum.
        momentum: decay of the momentum.
        weight_decay: decoupled weight decay.
        every: steps between updates of the preconditioners.
        largest: longer sides of a matrix are not preconditioned.
        floor: see `refreshed_root`.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float,
        *,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
        every: int = 1,
        largest: int = 2048,
        floor: float = 0.0,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "weight_decay": weight_decay,
            "every": every,
            "largest": largest,
            "floor": floor,
        }
        super().__init__(parameters, defaults)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Run one step; parameters without a gradient are skipped."""
        for group, trained, gradients in trained_groups(self):
            for parameter, gradient in zip(trained, gradients, strict=True):
                state = self.state[parameter]
                if not state:
                    _start(state, gradient)
                move = state["descent"].mul_(group["momentum"]).add_(gradient)
                if parameter.dim() > 1:
                    move = self._preconditioned(gradient, state, group, move)
                state["step"] += 1
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.sub_(move, alpha=group["lr"])

    def _preconditioned(
        self, gradient: Tensor, state: dict[str, Any], group: dict[str, Any], move: Tensor
    ) -> Tensor:
        matrix, due = gradient.flatten(1), state["step"] % group["every"] == 0
        if state.get("rootless") and bool(matrix.any()):
            _add_roots(state, matrix, group["largest"])
        update = matrix
        for side, factor in (("left", matrix), ("right", matrix.T)):
            root = state.get(side)
            if root is None:
                continue
            if due:
                state[side] = root = refreshed_root(root, factor, group["floor"])
            update = root @ update if side == "left" else update @ root
        direction = state["direction"].mul_(group["momentum"]).add_(update.view_as(gradient))
        return _rescaled(direction, move)


def _rescaled(direction: Tensor, like: Tensor) -> Tensor:
    """Return a direction with the norm of another tensor; squares of entries may overflow."""
    size, length = direction.abs().max().clamp(min=1e-30), like.abs().max().clamp(min=1e-30)
    unit = direction / size
    return unit * ((like / length).norm() / unit.norm().clamp(min=1e-30)) * length


def _start(state: dict[str, Any], gradient: Tensor) -> None:
    """Initialise the state of a parameter."""
    state["step"] = 0
    state["descent"] = torch.zeros_like(gradient)
    if gradient.dim() > 1:
        state["direction"] = torch.zeros_like(gradient)
        state["rootless"] = True


def _add_roots(state: dict[str, Any], matrix: Tensor, largest: int) -> None:
    """Initialise the roots by the first gradient that is not zero.

    Starting from a small constant, it would take a hundred steps until the preconditioner has the
    size of the gradients. A zero gradient (below a zero-initialised layer) has no size.
    """
    peak = matrix.abs().max()
    size = (matrix / peak).square().sum()
    for side, length in (("left", matrix.shape[0]), ("right", matrix.shape[1])):
        if length <= largest:
            scale = (peak * (size / length).sqrt()).clamp(min=1e-15) ** -0.5
            state[side] = scale * torch.eye(length, dtype=size.dtype, device=size.device)
    state["rootless"] = False
