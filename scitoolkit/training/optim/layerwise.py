"""LAMB and LARS: layer-wise adaptive rates, with steps scaled by the trust ratio of each tensor.

The trust ratio is the norm of the weights over that of the step. It allows batches k times as large
with a rate about sqrt(k) times as high (see the schedule `legw`), because no layer changes much
relative to its weights. Vectors (biases and weights of normalisations) are not scaled. With shards,
the norms are those of whole tensors.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from scitoolkit.training.optim.norms import trust_ratio, whole_norms
from scitoolkit.training.optim.trained import trained_groups
from scitoolkit.training.sharding import local


class Lamb(Optimizer):
    """LAMB: Adam with decoupled weight decay and layer-wise trust ratios.

    Args:
        parameters: trainable parameters.
        lr: relative change of a matrix per step, approximately.
        betas: decay rates of Adam's averages.
        eps: added to the root of the second moment.
        weight_decay: decoupled; included in the step whose norm enters the trust ratio.

    Source: You et al. 2020, https://arxiv.org/abs/1904.00962, algorithm 2, phi the identity.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float,
        *,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
    ) -> None:
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(parameters, defaults)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Do one step with the gradients that are there."""
        for group, trained, gradients in trained_groups(self):
            weights = [local(p) for p in trained]
            steps = self._adam(trained, list(map(local, gradients)), group)
            torch._foreach_add_(steps, weights, alpha=group["weight_decay"])
            sizes, lengths = whole_norms(weights, steps, like=trained)
            ratios = _matrices_only(trust_ratio(sizes, lengths), trained)
            torch._foreach_mul_(steps, list((-group["lr"] * ratios).unbind()))
            torch._foreach_add_(weights, steps)

    def _adam(
        self, trained: list[Tensor], gradients: list[Tensor], group: dict[str, Any]
    ) -> list[Tensor]:
        first, second = group["betas"]
        for parameter in trained:
            state = self.state[parameter]
            if not state:
                state["mean"] = torch.zeros_like(parameter)
                state["square"] = torch.zeros_like(parameter)
            state["step"] = state.get("step", 0) + 1
        means = [local(self.state[p]["mean"]) for p in trained]
        squares = [local(self.state[p]["square"]) for p in trained]
        torch._foreach_lerp_(means, gradients, 1 - first)
        torch._foreach_mul_(squares, second)
        torch._foreach_addcmul_(squares, gradients, gradients, value=1 - second)
        counts = [self.state[p]["step"] for p in trained]
        sizes = torch._foreach_div(squares, [1 - second**n for n in counts])
        torch._foreach_sqrt_(sizes)
        torch._foreach_add_(sizes, group["eps"])
        steps = torch._foreach_div(means, [1 - first**n for n in counts])
        torch._foreach_div_(steps, sizes)
        return list(steps)


class Lars(Optimizer):
    """LARS: gradient descent with momentum and layer-wise trust ratios.

    Args:
        parameters: trainable parameters.
        lr: learning rate.
        trust: trust coefficient; the relative change of a matrix is about lr * trust per step,
            before momentum.
        momentum: decay of the momentum.
        weight_decay: added to the gradient.

    Source: You et al. 2017, https://arxiv.org/abs/1708.03888, algorithm 1.
    """

    def __init__(
        self,
        parameters: Iterable[Tensor] | Iterable[dict[str, Any]],
        lr: float,
        *,
        trust: float = 0.001,
        momentum: float = 0.9,
        weight_decay: float = 0.0,
    ) -> None:
        defaults = {"lr": lr, "trust": trust, "momentum": momentum, "weight_decay": weight_decay}
        super().__init__(parameters, defaults)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Do one step with the gradients that are there."""
        for group, trained, gradients in trained_groups(self):
            decay = group["weight_decay"]
            weights = [local(p) for p in trained]
            gradients = list(map(local, gradients))
            sizes, lengths = whole_norms(weights, gradients, like=trained)
            ratios = group["trust"] * trust_ratio(sizes, lengths + decay * sizes)
            steps = torch._foreach_add(gradients, weights, alpha=decay)
            rates = list((group["lr"] * _matrices_only(ratios, trained)).unbind())
            torch._foreach_mul_(steps, rates)
            moves = []
            for parameter in trained:
                state = self.state[parameter]
                if not state:
                    state["move"] = torch.zeros_like(parameter)
                moves.append(local(state["move"]))
            torch._foreach_mul_(moves, group["momentum"])
            torch._foreach_add_(moves, steps)
            torch._foreach_sub_(weights, moves)


def _matrices_only(ratios: Tensor, trained: list[Tensor]) -> Tensor:
    """Return the ratios with 1 for vectors and scalars."""
    matrix = torch.tensor([p.dim() > 1 for p in trained], device=ratios.device)
    return torch.where(matrix, ratios, torch.ones_like(ratios))
