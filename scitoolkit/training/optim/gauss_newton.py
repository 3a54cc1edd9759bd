"""Damped Gauss-Newton (Levenberg-Marquardt) for losses that are sums of squares.

A step linearises the residuals r and minimises ``|r + J s|^2 + damping |s|^2``. The damping is
adapted to the ratio of actual to predicted decrease of the loss. Steihaug's trust region is not
used: J is ill-conditioned, and with an unscaled radius truncated conjugate gradients stop at the
boundary far from the minimum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.optim import Optimizer

LARGEST_DIRECT = 3000
_HIGHEST = 1e20


class ResidualFunction(Protocol):
    """Residuals evaluated by a step of `GaussNewtonDescent`; implemented by `StepResiduals`."""

    total: Callable[[Tensor], Tensor]

    def values(self, weights: list[Tensor]) -> Tensor:
        """Return this rank's residuals (m,)."""

    def rows(self, weights: list[Tensor]) -> tuple[Tensor, Tensor]:
        """Return this rank's residuals (m,) and their Jacobian (m, n)."""


class GaussNewtonDescent(Optimizer):
    """Optimizer with damped Gauss-Newton steps.

    With up to 3,000 residuals or parameters the system is solved by Cholesky decomposition, in the
    space of residuals or of parameters, whichever is smaller; otherwise by up to `inner`
    conjugate-gradient steps, each of which needs one all-reduce with several ranks.

    Args:
        parameters: trainable parameters.
        damping: initial damping over the largest diagonal entry of J'J. 1 suits the random weights
            of a network; weights close to the minimum need far less, e.g. 1e-6.
        trials: dampings tried per step before the weights are left unchanged.
        inner: largest number of conjugate-gradient steps.
        several_ranks: whether residuals are distributed over several ranks.

    Source: Madsen, Nielsen and Tingleff 2004, Methods for non-linear least squares problems,
    algorithm 3.16 (the update of the damping is Nielsen's), and eq. 3.14 for its first value.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor],
        *,
        damping: float = 1.0,
        trials: int = 8,
        inner: int = 100,
        several_ranks: bool = False,
    ) -> None:
        defaults = {
            "lr": 1.0,
            "first": damping,
            "trials": trials,
            "inner": inner,
            "damping": None,
            "growth": 2.0,
        }
        super().__init__(parameters, defaults)
        self._several_ranks = several_ranks

    @torch.no_grad()
    def step(self, residuals: ResidualFunction) -> tuple[float, float]:  # type: ignore[override]
        """Run one step.

        Returns:
            The loss before the step and the norm of its gradient.
        """
        group = self.param_groups[0]
        parameters: list[Tensor] = group["params"]
        start = [p.detach().clone() for p in parameters]
        with torch.enable_grad():
            values, jacobian = residuals.rows(start)
        system = _System(values, jacobian, residuals.total, self._several_ranks, group["inner"])
        norm = 2 * float(system.gradient.norm())
        if not (torch.isfinite(system.gradient).all() and norm > 0):
            return system.loss, norm
        if group["damping"] is None:
            group["damping"] = group["first"] * system.largest
        for _ in range(group["trials"]):
            move = system.solved(group["damping"])
            if move is not None and self._tried(group, start, move, system, residuals):
                break
            group["damping"] = min(group["damping"] * group["growth"], _HIGHEST)
            group["growth"] = min(group["growth"] * 2, _HIGHEST)
        else:
            torch._foreach_copy_(parameters, start)
        return system.loss, norm

    def _tried(
        self,
        group: dict[str, Any],
        start: list[Tensor],
        move: Tensor,
        system: _System,
        residuals: ResidualFunction,
    ) -> bool:
        """Apply a step; return whether the loss decreases, and in that case adapt the damping."""
        parameters: list[Tensor] = group["params"]
        parts = move.split([p.numel() for p in parameters])
        steps = [s.view_as(p).to(p.dtype) for s, p in zip(parts, parameters, strict=True)]
        moved = list(torch._foreach_add(start, steps))
        torch._foreach_copy_(parameters, moved)
        # Of plain tensors, as the loss before the step: for parameters torch sums in another order.
        loss = float(residuals.total(residuals.values(moved).square().sum()))
        if not loss < system.loss:  # also when it is NaN
            return False
        predicted = system.loss - system.predicted(move)
        gain = min(max((system.loss - loss) / max(predicted, 1e-300), 0.0), 1.0)
        group["damping"] *= max(1 / 3, 1 - (2 * gain - 1) ** 3)
        group["damping"] = max(group["damping"], 1e-16 * system.largest)
        group["growth"] = 2.0
        return True


class _System:
    """The linearised least-squares problem at one point.

    Attributes:
        loss: sum of the squared residuals of all ranks.
        gradient: J'r (n,), half the gradient of the loss.
        largest: largest entry of the diagonal of J'J.
    """

    def __init__(
        self, values: Tensor, jacobian: Tensor, total: Any, several_ranks: bool, inner: int
    ) -> None:
        self._values, self._jacobian, self._total = values, jacobian, total
        self._inner = inner
        rows, columns = jacobian.shape
        sums = torch.cat(
            [jacobian.T @ values, jacobian.square().sum(0), values.square().sum()[None]]
        )
        self.gradient, diagonal, loss = total(sums).split([columns, columns, 1])
        self.loss, self.largest = float(loss), float(diagonal.max())
        self._dual = not several_ranks and rows <= columns
        side = rows if self._dual else columns
        self._gram: Tensor | None = None
        if side <= LARGEST_DIRECT:
            product = jacobian @ jacobian.T if self._dual else jacobian.T @ jacobian
            self._gram = product if self._dual else total(product)

    def solved(self, damping: float) -> Tensor | None:
        """Return the step for a damping, or None if the system is not positive definite."""
        if self._gram is None:
            return self._by_conjugate_gradients(damping)
        damped = self._gram.clone()
        damped.diagonal().add_(damping)
        factor, failed = torch.linalg.cholesky_ex(damped)
        if failed.item():
            return None
        right = self._values if self._dual else self.gradient
        solution = torch.cholesky_solve(right[:, None], factor)[:, 0]
        return -(self._jacobian.T @ solution) if self._dual else -solution

    def predicted(self, move: Tensor) -> float:
        """Return the loss predicted by the linearisation."""
        linear = self._values + self._jacobian @ move
        return float(self._total(linear.square().sum()))

    def _by_conjugate_gradients(self, damping: float) -> Tensor:
        step = torch.zeros_like(self.gradient)
        rest = -self.gradient
        direction, square = rest.clone(), rest @ rest
        target = 1e-16 * square
        for _ in range(self._inner):
            product = self._total(self._jacobian.T @ (self._jacobian @ direction))
            product.add_(direction, alpha=damping)
            length = square / (direction @ product)
            step += length * direction
            rest -= length * product
            new = rest @ rest
            if new <= target:
                break
            direction = rest + (new / square) * direction
            square = new
        return step
