"""Check that all ranks start the same exchange inside a model.

Ranks may take different paths through a model: a layer that the rows of one rank do not need, or an
expert that no row chooses. If the layer exchanges data, its message meets another one on the other
ranks. Of equal sizes, these are mixed without notice; of unequal sizes, gloo ends the process.
"""

from __future__ import annotations

import zlib
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from scitoolkit.core.errors import ConfigError

# The names since torch 2.13, and those before.
_NEW = hasattr(dist, "all_gather_single")
_GATHER = "all_gather_single" if _NEW else "all_gather_into_tensor"
_REDUCE = "reduce_scatter_single" if _NEW else "reduce_scatter_tensor"
END_OF_PASS = "the end of the pass"


class ExchangeOrder:
    """Comparison of the exchanges that the ranks are about to start, by a number of 8 bytes.

    Args:
        fix: what a user can change, for the error.
    """

    def __init__(self, fix: str) -> None:
        self._fix = fix

    def check(self, place: str) -> None:
        """Compare names of exchanges; every rank calls this before each exchange.

        Raises:
            ConfigError: on all ranks, if they differ.
        """
        own = torch.tensor([zlib.crc32(place.encode())])
        numbers = [torch.empty_like(own) for _ in range(dist.get_world_size())]
        dist.all_gather(numbers, own)
        if all(torch.equal(number, own) for number in numbers):
            return
        places = [place] * len(numbers)
        dist.all_gather_object(places, place)
        other = next(rank for rank, name in enumerate(places) if name != places[0])
        raise ConfigError(
            f"rank 0 has reached {places[0]}, rank {other} {places[other]}",
            where="model",
            allowed="layers that exchange data are called in the same order on all ranks",
            fix=self._fix,
        )


class _Memory:
    def __init__(self, order: ExchangeOrder, place: str) -> None:
        self._order, self._place = order, place

    def allocate(self, size: Any, *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class _Gather(_Memory):
    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False
    ) -> Any:
        self._order.check(self._place)
        gather = getattr(dist, _GATHER)
        return gather(output_tensor, input_tensor, group=group, async_op=async_op)


class _Reduce(_Memory):
    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: Any,
        op: Any,
        async_op: bool = False,
    ) -> Any:
        self._order.check(self._place)
        reduce = getattr(dist, _REDUCE)
        return reduce(output_tensor, input_tensor, op=op, group=group, async_op=async_op)


def check_gathers(model: nn.Module, order: ExchangeOrder) -> None:
    """Compare the order of all gathers and reductions of a model after `fully_shard`."""
    from torch.distributed.fsdp import FSDPModule

    for name, module in model.named_modules():
        if isinstance(module, FSDPModule):
            name = name or "(the model itself)"
            gather: Any = _Gather(order, f"layer {name}")
            reduce: Any = _Reduce(order, f"gradients of {name}")
            module.set_custom_all_gather(gather)
            module.set_custom_reduce_scatter(reduce)
