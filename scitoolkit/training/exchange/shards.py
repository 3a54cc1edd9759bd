"""Reduce-scatter of gradients and all-gather of weights, for sharded optimizer state.

A parameter is sharded along its first dimension like `torch.chunk`, as by FSDP2 and in checkpoints.
A bucket is a matrix with one row per rank, which contains the rank's shards of the bucket's
parameters.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from scitoolkit.training.exchange.buckets import OrderedBuckets, Watch, on_gradient
from scitoolkit.training.exchange.sums import ShardExchange
from scitoolkit.training.sharding import local

ALIGNED = 32  # numbers; exchanges may transform blocks of this size


class ShardBuckets(OrderedBuckets):
    """Buckets that give each rank its shard of the summed gradients and gather updated weights.

    Args:
        named: trainable parameters with their names, in the same order and with the same values on
            all ranks; contiguous.
        exchange: sends the buckets.
        bucket_mib: largest size of a bucket in MiB; a larger gradient gets a bucket of its size.
        keep: keep the memory of the buckets between steps.
        offload: keep the shards and their gradients in CPU memory.
        watch: as for `OrderedBuckets`.

    Attributes:
        parts: parameters of the optimizer by model parameter: DTensors sharded along the first
            dimension. With an inexact exchange they are more precise than the model's parameters.
    """

    def __init__(
        self,
        named: Sequence[tuple[str, nn.Parameter]],
        exchange: ShardExchange,
        bucket_mib: float,
        *,
        keep: bool,
        offload: bool = False,
        watch: Watch = on_gradient,
    ) -> None:
        parameters = [p for _, p in named]
        assert all(p.is_contiguous() for p in parameters), "the strategy makes them contiguous"
        super().__init__(parameters, bucket_mib, watch)
        self._exchange, self._keep = exchange, keep
        self._rank, self._world = dist.get_rank(), dist.get_world_size()
        # The device of a DTensor is that of its mesh.
        self._home = torch.device("cpu") if offload else parameters[0].device
        self._offload = offload
        self._mesh = init_device_mesh(self._home.type, (self._world,))
        self._rows: dict[int, Tensor] = {}
        self._places: dict[nn.Parameter, tuple[int, int]] = {}
        self._lengths: list[int] = []
        for members in self._members:
            begin = 0
            for parameter in members:
                size = -(-_rows(parameter) // self._world) * _row_size(parameter)
                self._places[parameter] = begin, begin + size
                begin += size
            # At least one number is left over for the failure flag.
            self._lengths.append((begin // ALIGNED + 1) * ALIGNED)
        self.parts: dict[nn.Parameter, nn.Parameter] = {p: self._part(p) for p in parameters}

    @torch.no_grad()
    def publish(self) -> None:
        """Copy the shards updated by the optimizer to the parameters on all ranks."""
        whole = not self._exchange.by_differences
        for members, length in zip(self._members, self._lengths, strict=True):
            part = members[0].new_zeros(length)
            for parameter in members:
                begin, _ = self._places[parameter]
                values = local(self.parts[parameter]).flatten().to(part.device)
                if not whole:
                    values = values - self._chunk(parameter, self._rank)
                part[begin : begin + len(values)] = values
            for rank, row in enumerate(self._exchange.gather(part)):
                for parameter in members:
                    chunk, begin = self._chunk(parameter, rank), self._places[parameter][0]
                    update = row[begin : begin + len(chunk)]
                    chunk.copy_(update) if whole else chunk.add_(update)

    def _part(self, parameter: nn.Parameter) -> nn.Parameter:
        """Return this rank's shard as a DTensor parameter."""
        values = self._chunk(parameter, self._rank).detach()
        if self._offload or not self._exchange.exact:
            values = values.to(self._home, copy=True)
        return nn.Parameter(self._split(parameter, values))

    def _split(self, like: nn.Parameter, values: Tensor) -> DTensor:
        shape = like.shape or torch.Size([1])
        return DTensor.from_local(
            values.view(-1, *shape[1:]),
            self._mesh,
            [Shard(0)],
            run_check=False,
            shape=shape,
            stride=like.stride() or (1,),
        )

    def _chunk(self, tensor: Tensor, rank: int) -> Tensor:
        """Return the rows of a rank, flat; a view where the tensor is contiguous."""
        rows, size = -(-_rows(tensor) // self._world), _row_size(tensor)
        flat = tensor.detach().reshape(-1)
        return flat[min(rank * rows * size, len(flat)) : (rank + 1) * rows * size]

    def _copy(self, parameter: nn.Parameter, gradient: Tensor | None) -> None:
        number = self._bucket_of[parameter]
        if number not in self._rows:
            self._rows[number] = parameter.new_zeros(self._world, self._lengths[number])
        begin, end = self._places[parameter]
        rows = self._rows[number][:, begin:end]
        if gradient is None:
            rows.zero_()
        elif gradient.numel() == rows.numel():
            rows.copy_(gradient.reshape(rows.shape))
        else:  # the padding of the last ranks' shards stays zero
            for rank in range(self._world):
                chunk = self._chunk(gradient, rank)
                rows[rank, : len(chunk)] = chunk

    def _start(self, number: int, failed: bool) -> Callable[[], object]:
        rows = self._rows[number] if self._keep else self._rows.pop(number)
        return self._exchange.scatter(rows, failed)

    def _finish(self, sums: list[object]) -> bool:
        sums_and_flags = cast(list[tuple[Tensor, bool]], sums)
        for members, (part, _) in zip(self._members, sums_and_flags, strict=True):
            for parameter in members:
                begin, _ = self._places[parameter]
                moved = self.parts[parameter]
                gradient = part[begin : begin + local(moved).numel()].to(self._home)
                moved.grad = self._split(parameter, gradient)
        return sums_and_flags[-1][1]

    def _remove(self, parameter: nn.Parameter) -> None:
        self.parts[parameter].grad = None


def _rows(tensor: Tensor) -> int:
    return tensor.shape[0] if tensor.dim() else 1


def _row_size(tensor: Tensor) -> int:
    return math.prod(tensor.shape[1:])
