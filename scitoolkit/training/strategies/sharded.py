"""Sharded training (ZeRO): parameters, gradients and optimizer state split by torch's FSDP2."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor, nn

from scitoolkit.training.exchange.config import ExchangeConfig
from scitoolkit.training.sharding import whole
from scitoolkit.training.strategies.data_parallel import DataParallelStrategy


class ShardedStrategy(DataParallelStrategy):
    """Every rank holds a part of each parameter, its gradient and its optimizer state.

    The elements of every `nn.ModuleList` are gathered one at a time, the rest at once. The user's
    module gives its memory away during training and has the whole weights again afterwards.
    """

    agrees_on_errors = False

    def prepare(self, model: nn.Module) -> nn.Module:
        """Return a sharded copy of the model; the model itself is emptied until `restore`."""
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        model = model.to(self.device)
        with torch.no_grad():
            for tensor in [*model.parameters(), *model.buffers()]:
                dist.broadcast(tensor, src=0)
        self._whole = model
        sharded = copy.deepcopy(model)
        model.to("meta")
        mesh = init_device_mesh(self.device.type, (self.world,))
        for module in list(sharded.modules()):
            for child in module if isinstance(module, nn.ModuleList) else ():
                if any(True for _ in child.parameters()):
                    fully_shard(child, mesh=mesh)
        fully_shard(sharded, mesh=mesh)
        self._synchronise(sharded)
        return sharded

    def restore(self, model: nn.Module) -> nn.Module:
        """Gather the whole weights into the user's module, on every rank."""
        empty = self._whole.to_empty(device=self.device)
        with torch.no_grad():
            for target, source in zip(empty.parameters(), model.parameters(), strict=True):
                target.copy_(whole(source))
            for target_buffer, buffer in zip(empty.buffers(), model.buffers(), strict=True):
                target_buffer.copy_(buffer)
        return empty

    def reshard(self, model: nn.Module) -> None:
        """Go back to shards: after a forward pass alone FSDP2 keeps the root gathered."""
        from torch.distributed.fsdp import FSDPModule

        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()

    def attach(self, parameters: Sequence[nn.Parameter], exchange: ExchangeConfig) -> None:
        """Do nothing: FSDP2 sums the gradients."""

    def reduce_gradients(self, parameters: Sequence[nn.Parameter], failed: bool) -> bool:
        """Do nothing: FSDP2 has reduced them in the backward pass, or lost a rank there."""
        return failed

    def loss_scale(self) -> float:
        """Return the world size: FSDP2 averages gradients over the ranks."""
        return float(self.world)

    def norm(self, gradients: list[Tensor]) -> Tensor:
        """Return the norm over all shards; empty shards count as 0."""
        parts = [g for g in gradients if g.numel()]
        square = torch.zeros((), dtype=torch.float64)
        if parts:
            square = super().norm(parts).double() ** 2
        square = square.to(self.device)
        dist.all_reduce(square)
        return square.sqrt()
