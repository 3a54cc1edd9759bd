"""Interface of a training strategy, which distributes a training over processes.

All strategies compute the same result: the gradient is the sum over all micro-batches and ranks of
(samples of the micro-batch / samples of the step) times the mean gradient of the micro-batch, so a
rank with fewer samples, or a filler, is weighted accordingly. A parameter that no sample of a step
uses has no gradient on any number of processes, so that neither moments nor weight decay change it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from scitoolkit.training.deferred import check_deferred, draw, is_deferred
from scitoolkit.training.exchange.buckets import Watch, on_gradient
from scitoolkit.training.exchange.config import ExchangeConfig
from scitoolkit.training.sharding import whole


class TrainingStrategy:
    """Base class of strategies; the methods implement the case of a single process.

    Args:
        device: training device.
        rank, world: rank of this process and number of processes.

    Attributes:
        rank, world: rank of this process and number of processes.
        seed_rank: rank whose random stream is used; equal on processes that must draw the same.
        agrees_on_errors: whether an error in the loss is raised on all ranks together, after the
            gradient exchange. False if ranks communicate inside the model: the error is then
            raised at once, because the communication of the other ranks fails with it.
        names_differ: whether ranks have other parameters, so that tensors that are not parts of
            one on all ranks may be missing on rank 0.
    """

    agrees_on_errors = False
    names_differ = False

    def __init__(self, device: torch.device, rank: int = 0, world: int = 1) -> None:
        self.device = device
        self.rank: int = rank
        self.seed_rank: int = rank
        self.world: int = world

    def prepare(self, model: nn.Module, seed: int) -> nn.Module:
        """Return the model to train, on the device and equal on all ranks.

        Args:
            model: the user's model; if it is on the meta device it is initialised.
            seed: seed of the initial weights.

        Raises:
            ConfigError: a model on the meta device cannot be initialised.
        """
        if is_deferred(model):
            check_deferred(model)
            model = model.to_empty(device=self.device)
            draw(model, seed)
        return model.to(self.device)

    def restore(self, model: nn.Module) -> nn.Module:
        """Return the whole model for use after training, given the trained one."""
        return model

    def whole(self, tensor: Tensor) -> Tensor:
        """Return a tensor that may be divided over the ranks as a whole, on every rank."""
        return whole(tensor)

    def merged(self, by_parameter: dict[str, Any]) -> dict[str, Any]:
        """Return entries by parameter of all ranks; of this rank if all have the same names."""
        return by_parameter

    def streams(self) -> list[int] | None:
        """Return the random stream of each rank, or None if every rank has its own."""
        return None

    def reshard(self, model: nn.Module) -> None:
        """Drop gathered copies of the weights, before the weights are modified."""

    def weigh(self, count: int) -> None:
        """Set the number of samples of the next micro-batch; 0 for a filler."""

    def agree(self, samples: int, digest: int, *flags: bool) -> tuple[float, bool, list[bool]]:
        """Return the samples of all ranks, whether digests agree, and flags that any rank sets.

        Args:
            samples: of this rank.
            digest: a number below 2^20.
            flags: of this rank.
        """
        return samples, True, list(flags)

    def attach(
        self,
        named: Sequence[tuple[str, nn.Parameter]],
        exchange: ExchangeConfig,
        watch: Watch = on_gradient,
    ) -> list[tuple[str, nn.Parameter]]:
        """Set up the gradient exchange, before the first step.

        Args:
            named: trainable parameters with their names.
            exchange: the configured gradient exchange.
            watch: registers a function to be called whenever a gradient is complete.

        Returns:
            Parameters that the optimizer updates on this process, by the same names.
        """
        return list(named)

    def begin_exchange(self) -> None:
        """Announce that the next backward pass completes the gradients of a step."""

    def reduce_gradients(self, failed: bool) -> bool:
        """Sum the gradients over the ranks; return whether any rank failed to compute them."""
        return failed

    def publish(self) -> None:
        """Copy the parameters updated by the optimizer into the models of all ranks."""

    def tensors(self) -> dict[str, Tensor]:
        """Return additional tensors to save in checkpoints, by name."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """Return the adaptive state of the exchange as JSON types, equal on all ranks."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`."""

    def measure_gradients(self) -> bool:
        """Enable measurement of gradient norms before and after the exchange, if supported.

        Returns:
            Whether it is supported.
        """
        return False

    def gradient_squares(self) -> tuple[float, float]:
        """Return the squared gradient norms of the last step: this rank's samples, all samples."""
        raise NotImplementedError

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
    """Strategy of a single process."""
