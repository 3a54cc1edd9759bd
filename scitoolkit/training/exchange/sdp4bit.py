"""SDP4Bit: gradients in 8 bits within a node and 4 between nodes, weights as 4-bit differences.

Each rank keeps its shard of the weights in full precision, and all ranks hold the same quantised
copy of all weights. A rank sends the quantised difference between its shard and that copy. The
difference contains the previous rounding error, so errors do not accumulate.

Source: Jia et al. 2024, https://arxiv.org/abs/2410.15526; group sizes as in its code.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.processes import node_size
from scitoolkit.training.exchange.quantised import decoded, encoded, turned

WEIGHTS, WITHIN, BETWEEN = 2048, 512, 128  # numbers that share a scale


class Sdp4BitShards:
    """Shard exchange with two all-to-alls for gradients and one all-gather for weights, quantised.

    Args:
        hadamard: quantise gradients after a Hadamard transform of each 32 numbers.
        processes_per_node: processes per node; None for the launcher's value.

    Raises:
        ConfigError: the nodes have different numbers of processes.
    """

    exact = False
    by_differences = True

    def __init__(self, hadamard: bool, processes_per_node: int | None) -> None:
        world, rank = dist.get_world_size(), dist.get_rank()
        self._local = min(processes_per_node or node_size(), world)
        if world % self._local:
            raise ConfigError(
                f"{world} processes are not a whole number of nodes of {self._local}",
                where="training.exchange.processes_per_node",
                fix="a divisor of the number of processes",
            )
        self._nodes, self._hadamard = world // self._local, hadamard
        # Every rank must create every group, in the same order.
        nodes = [list(range(k * self._local, (k + 1) * self._local)) for k in range(self._nodes)]
        near = [dist.new_group(members) for members in nodes]
        far = [dist.new_group(list(range(i, world, self._local))) for i in range(self._local)]
        self._near, self._far = near[rank // self._local], far[rank % self._local]

    def scatter(self, rows: Tensor, failed: bool) -> Callable[[], tuple[Tensor, bool]]:
        """Start the exchange within the node; waiting for it starts the one between nodes.

        Args:
            rows: (ranks, numbers), with a multiple of 32 numbers.
            failed: failure flag of this rank, sent with the codes.
        """
        numbers, dtype = rows.shape[1], rows.dtype
        sent = turned(rows.float()) if self._hadamard else rows
        # Local rank i of this node gets the rows of the ranks i of all nodes.
        sent = sent.view(self._nodes, self._local, numbers).transpose(0, 1).contiguous()
        flag = rows.new_full((1,), float(failed), dtype=torch.float32)
        if self._local > 1:
            begun = _CodeExchange(sent.view(self._local, -1), flag, 8, WITHIN, self._near)

        def finish() -> tuple[Tensor, bool]:
            part, total = sent.view(1, -1), flag
            if self._local > 1:
                part, total = begun.sums()
            if self._nodes > 1:
                share = part.view(self._nodes, numbers)
                part, total = _CodeExchange(share, total, 4, BETWEEN, self._far).sums()
            part = turned(part.view(1, -1)) if self._hadamard else part
            return part.view(-1).to(dtype), not total.item() == 0

        return finish

    def gather(self, part: Tensor) -> Tensor:
        """All-gather quantised differences; return (ranks, numbers)."""
        data = encoded(part[None], 4, WEIGHTS)[0]
        out = data.new_empty(dist.get_world_size(), data.numel())
        dist.all_gather(list(out), data)
        return decoded(out, part.numel(), 4, WEIGHTS).to(part.dtype)


class _CodeExchange:
    """All-to-all of codes, with a flag that is summed exactly."""

    def __init__(
        self, rows: Tensor, flag: Tensor, bits: int, group: int, ranks: dist.ProcessGroup
    ) -> None:
        self._numbers, self._bits, self._group = rows.shape[1], bits, group
        flags = flag.view(torch.uint8).expand(len(rows), -1)
        # The flag comes first, so that the scales stay aligned to four bytes.
        data = torch.cat([flags, encoded(rows, bits, group)], 1)
        self._received = torch.empty_like(data)
        self._work = dist.all_to_all_single(self._received, data, group=ranks, async_op=True)

    def sums(self) -> tuple[Tensor, Tensor]:
        """Wait; return the sum of the received rows, in order of the ranks, and of the flags."""
        self._work.wait()
        flags, data = self._received[:, :4], self._received[:, 4:]
        values = decoded(data, self._numbers, self._bits, self._group)
        return values.sum(0), flags.contiguous().view(torch.float32).sum(0)
