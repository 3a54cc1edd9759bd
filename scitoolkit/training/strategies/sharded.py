"""Training with sharded parameters, gradients and optimizer state (FSDP2, ZeRO stage 3)."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor
from torch.nn.modules.batchnorm import _BatchNorm

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.memory import return_freed_memory
from scitoolkit.training.deferred import check_deferred, draw, is_deferred, tied
from scitoolkit.training.exchange.buckets import Watch, on_gradient
from scitoolkit.training.exchange.config import ExchangeConfig
from scitoolkit.training.sharding import cut, local, whole
from scitoolkit.training.strategies.data_parallel import DataParallelStrategy
from scitoolkit.training.strategies.exchange_order import ExchangeOrder, check_gathers
from scitoolkit.training.strategies.in_place import copy_from_first
from scitoolkit.training.strategies.reached import ReachedParameters

SMALLEST_SHARE = 1 / 16  # of the group size; smaller modules are gathered with the root
GROUPS, SMALLEST_GROUP_MIB = 24, 1.0


class ShardedStrategy(DataParallelStrategy):
    """Strategy with fully sharded parameters, gradients and optimizer state.

    Modules of about `group_mib` are gathered one at a time; the remaining parameters stay gathered
    for the whole step. A model on the meta device is initialised shard by shard and is never whole
    during the training. Afterwards the user's module has the whole weights again.

    Args:
        device: training device.
        group_mib: size of parameters gathered together; None for 1/24 of the model, at least 1 MiB.
        bf16: gather parameters and compute in bfloat16; shards, reduced gradients and optimizer
            state keep their precision.
        offload: keep shards, gradients and optimizer state in CPU memory.
    """

    agrees_on_errors = False
    holds_parts = True

    def __init__(
        self,
        device: torch.device,
        group_mib: float | None = None,
        *,
        bf16: bool = False,
        offload: bool = False,
    ) -> None:
        super().__init__(device)
        self._group_mib, self._bf16, self._offload = group_mib, bf16, offload

    def prepare(self, model: nn.Module, seed: int) -> nn.Module:
        """Return a sharded copy of the model; the model itself is emptied until `restore`.

        Raises:
            ConfigError: two names share a parameter, or the model cannot be initialised.
        """
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import FSDPModule, fully_shard

        check_gathered_precision(model, self._bf16)
        check_shardable(model)
        # Otherwise freed layers stay in the heap and the memory peak does not decrease.
        return_freed_memory()
        deferred = is_deferred(model)
        if deferred:
            check_deferred(model)
        sharded = without_memory(model)
        mesh = init_device_mesh(self.device.type, (self.world,))
        policies = self._policies()
        for module in gathered_together(sharded, self._group_mib):
            fully_shard(module, mesh=mesh, **policies)
        fully_shard(sharded, mesh=mesh, **policies)
        for module in sharded.modules():
            if isinstance(module, FSDPModule):  # sums, because losses are weighted by samples
                module.set_gradient_divide_factor(1.0)
                module.set_force_sum_reduction_for_comms(True)
        sharded.to_empty(device="cpu" if self._offload else self.device)
        for module in sharded.modules() if self._offload else ():
            for name, buffer in [*module.named_buffers(recurse=False)]:  # for the whole step
                setattr(module, name, buffer.to(self.device))
        if deferred:
            draw(sharded, seed)
        else:
            self._copy_parts(model, sharded)
        self._whole = model.to("meta")
        self._synchronise(sharded)
        if self.world > 1 and [*sharded.parameters()]:
            self._order = ExchangeOrder(_in_order(model))
            check_gathers(sharded, self._order)
        self._reached = ReachedParameters(sharded)
        return sharded

    def _policies(self) -> dict[str, Any]:
        """Return the policies of FSDP2."""
        from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy

        out: dict[str, Any] = {}
        if self._bf16:
            out["mp_policy"] = MixedPrecisionPolicy(torch.bfloat16, torch.float32, torch.float32)
        if self._offload:
            out["offload_policy"] = CPUOffloadPolicy()
        return out

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
        """Free gathered parameters: without a backward pass FSDP2 keeps the root gathered."""
        from torch.distributed.fsdp import FSDPModule

        for module in model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()

    def attach(
        self,
        named: Sequence[tuple[str, nn.Parameter]],
        exchange: ExchangeConfig,
        watch: Watch = on_gradient,
    ) -> list[tuple[str, nn.Parameter]]:
        """Return the parameters, which FSDP2 has sharded."""
        return list(named)

    def reduce_gradients(self, failed: bool) -> bool:
        """Remove gradients of unreached parameters; FSDP2 has reduced the others already."""
        self._check_end()
        self._reached.remove_unreached()
        return failed

    @torch.no_grad()
    def _copy_parts(self, model: nn.Module, sharded: nn.Module) -> None:
        """Copy this rank's shards of rank 0's weights, and all buffers."""
        pairs = zip(
            [*model.parameters(), *model.buffers()],
            [*sharded.parameters(), *sharded.buffers()],
            strict=True,
        )
        for source, target in pairs:
            value = source.detach().to(self.device)
            copy_from_first(value)
            part = local(target)
            if isinstance(target, DTensor):
                value = cut(value, target)
            part.copy_(value)


def check_shardable(model: nn.Module) -> None:
    """Check that parameters have rows to shard, and one name: FSDP2 would train each name apart.

    Raises:
        ConfigError: a parameter is a single number, or two names share one.
    """
    scalar = next((n for n, p in model.named_parameters() if not p.dim()), None)
    if scalar is not None:
        raise ConfigError(
            f"parameter {scalar} is a single number, which stage 3 does not support",
            where="training.sharding.stage",
            allowed="1, 2",
            fix="training.sharding.stage=2, or a parameter of shape (1,)",
        )
    if pair := tied(model):
        raise ConfigError(
            f"parameters {pair[0]} and {pair[1]} are tied, which stage 3 does not support",
            where="training.sharding.stage",
            allowed="1, 2",
            fix="training.sharding.stage=2",
        )


def check_gathered_precision(model: nn.Module, bf16: bool) -> None:
    """Check that no layer needs its parameters in a higher precision than bfloat16.

    Raises:
        ConfigError: a layer has running statistics or float64 parameters.
    """
    for name, module in model.named_modules() if bf16 else ():
        statistics = isinstance(module, _BatchNorm) and module.track_running_stats
        double = any(p.dtype == torch.float64 for p in module.parameters(recurse=False))
        if statistics or double:
            what = "has running statistics" if statistics else "has float64 parameters"
            raise ConfigError(
                f"{name or 'the model'} {what}, which are not gathered in bfloat16",
                where="training.gather_precision",
                fix="training.gather_precision=float32",
            )


def gathered_together(model: nn.Module, group_mib: float | None) -> list[nn.Module]:
    """Return the modules whose parameters are gathered together; the root gathers the rest.

    These are the largest modules of at most `group_mib`, and larger modules without children.

    Args:
        model: any module.
        group_mib: None for 1/24 of the model, at least 1 MiB.

    Example:
        >>> model = nn.Sequential(nn.Linear(512, 512), nn.Tanh(), nn.Linear(512, 512))
        >>> gathered_together(model, 1.1) == [model[0], model[2]]
        True
    """
    size = _mebibytes(model)
    limit = max(size / GROUPS, SMALLEST_GROUP_MIB) if group_mib is None else group_mib
    out: list[nn.Module] = []

    def visit(module: nn.Module) -> None:
        for child in module.children():
            container = isinstance(child, nn.ModuleList | nn.ModuleDict)  # never called
            size, inner = _mebibytes(child), any(True for _ in child.children())
            if container or (size > limit and inner):
                visit(child)
            elif size >= SMALLEST_SHARE * limit:
                out.append(child)

    visit(model)
    return out


def _in_order(model: nn.Module) -> str:
    """Return what to change if ranks gather layers in different orders."""
    size = math.ceil(_mebibytes(model))
    whole = f"training.sharding.group_mib={16 * size + 1}, which gathers the model as a whole"
    return f"training.sharding.stage=2, or {whole}"


def _mebibytes(module: nn.Module) -> float:
    return sum(p.numel() * p.element_size() for p in module.parameters()) / 2**20


def without_memory(model: nn.Module) -> nn.Module:
    """Return a copy on the meta device; FSDP2 demands that its parameters are contiguous."""
    memo: dict[int, object] = {}
    for parameter in model.parameters():
        trainable = parameter.requires_grad
        dense = torch.empty(parameter.shape, dtype=parameter.dtype, device="meta")
        memo[id(parameter)] = nn.Parameter(dense, trainable)
    for buffer in model.buffers():
        memo[id(buffer)] = torch.empty_like(buffer, device="meta")
    return copy.deepcopy(model, memo)
