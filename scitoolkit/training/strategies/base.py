"""Interface of a training strategy: how the processes of a job share one training.

All strategies compute the same numbers: a gradient is the sum over all micro-batches and ranks of
(samples of the part / samples of the step) times the part's mean gradient, so a rank that holds
fewer samples, or a filler, weighs accordingly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from scitoolkit.training.deferred import check_deferred, draw, is_deferred
from scitoolkit.training.exchange.buckets import Watch, on_gradient
from scitoolkit.training.exchange.config import ExchangeConfig


class TrainingStrategy:
    """Base of the strategies; each method does what one process needs.

    Args:
        device: where to train.

    Attributes:
        rank, world: this process and their number.
        seed_rank: the rank whose random numbers it draws; the same where processes must agree.
        agrees_on_errors: whether an error in a loss is raised after the gradient exchange, on all
            ranks together. False where ranks communicate inside the model: an error there ends
            the other ranks' communication, so it is raised at once.
    """

    agrees_on_errors = False

    def __init__(self, device: torch.device, rank: int = 0, world: int = 1) -> None:
        self.device = device
        self.rank: int = rank
        self.seed_rank: int = rank
        self.world: int = world

    def prepare(self, model: nn.Module, seed: int) -> nn.Module:
        """Return the model to train, on the device and equal on all ranks.

        Args:
            model: one without memory (torch's meta device) gets its first weights.
            seed: of these weights.

        Raises:
            ConfigError: the first weights of such a model are unknown.
        """
        if is_deferred(model):
            check_deferred(model)
            model = model.to_empty(device=self.device)
            draw(model, seed)
        return model.to(self.device)

    def restore(self, model: nn.Module) -> nn.Module:
        """Return the whole model for use after training, given the one that was trained."""
        return model

    def reshard(self, model: nn.Module) -> None:
        """Drop gathered copies of the weights, which changing the weights would make stale."""

    def weigh(self, count: int) -> None:
        """Receive the samples of the micro-batch whose loss comes next; 0 for a filler."""

    def agree(self, samples: int, *flags: bool) -> tuple[float, list[bool]]:
        """Return the global samples, and of each flag whether any rank raises it."""
        return samples, list(flags)

    def attach(
        self,
        named: Sequence[tuple[str, nn.Parameter]],
        exchange: ExchangeConfig,
        watch: Watch = on_gradient,
    ) -> list[tuple[str, nn.Parameter]]:
        """Receive the trained parameters and how to sum their gradients, before the first step.

        Args:
            named: what is trained, with names.
            exchange: sums gradients.
            watch: calls a function whenever a gradient is there.

        Returns:
            What the optimizer changes on this process, by the same names.
        """
        return list(named)

    def begin_exchange(self) -> None:
        """Learn that the backward pass that follows completes the gradients of a step."""

    def reduce_gradients(self, failed: bool) -> bool:
        """Sum the gradients over the ranks; return whether any rank failed to compute them."""
        return failed

    def publish(self) -> None:
        """Bring what the optimizer has changed into the models of all ranks."""

    def tensors(self) -> dict[str, Tensor]:
        """Return the tensors by name that a checkpoint needs besides the model."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return what the exchange has adapted, as JSON types, equal on all ranks."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore what `state_dict` returned."""

    def measure_gradients(self) -> bool:
        """Measure gradients before and after their exchange from now on; return whether it can."""
        return False

    def gradient_squares(self) -> tuple[float, float]:
        """Return the last step's squared gradient norms, of this rank's samples and of all."""
        raise NotImplementedError

    def loss_scale(self) -> float:
        """Return the factor of a local loss that compensates for averaged gradients."""
        return 1.0

    def norm(self, gradients: list[Tensor]) -> Tensor:
        """Return the global 2-norm of local gradients."""
        norms = torch._foreach_norm(gradients)
        return torch.linalg.vector_norm(torch.stack(norms)) if len(norms) > 1 else norms[0]

    def sum(self, values: list[float]) -> list[float]:
        """Sum a list over the ranks."""
        return values

    def total(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over the ranks, in place."""
        return tensor

    def sync_buffers(self, buffers: Sequence[Tensor]) -> None:
        """Copy rank 0's buffers to all ranks."""


class SingleStrategy(TrainingStrategy):
    """Strategy of a lone process."""
