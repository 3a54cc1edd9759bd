"""The edges of a graph in the two orders that deterministic kernels need."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from scitoolkit.core.errors import DataError


@dataclass(frozen=True)
class Edges:
    """Edges from senders to receivers, with the order by receiver and the order by sender.

    Make one per neighbour list and use it for every layer, forward and backward. Edges may come
    in any order; both orders are stable, so equal input gives bit-equal output.

    Attributes:
        sender, receiver: node of each edge, shape (E,), int64.
        receiver_ptr, sender_ptr: start of each node's edges in its order, shape (N + 1,), int64.
        receiver_order, sender_order: edges by receiver and by sender, shape (E,), int64.

    Example:
        >>> edges = Edges.build(torch.tensor([1, 0, 0]), torch.tensor([0, 2, 0]), num_nodes=3)
        >>> edges.receiver_ptr.tolist(), edges.receiver_order.tolist()
        ([0, 2, 2, 3], [0, 2, 1])
    """

    sender: Tensor
    receiver: Tensor
    receiver_ptr: Tensor
    receiver_order: Tensor
    sender_ptr: Tensor
    sender_order: Tensor

    @classmethod
    def build(cls, sender: Tensor, receiver: Tensor, num_nodes: int) -> Edges:
        """Check indices and sort them once.

        Args:
            sender, receiver: node of each edge, shape (E,), any integer dtype.
            num_nodes: number of nodes; nodes without edges are allowed.

        Raises:
            DataError: shapes that differ, a dtype that is no integer, an index out of range.
        """
        for name, index in (("sender", sender), ("receiver", receiver)):
            _check_index(name, index, num_nodes)
        if sender.shape != receiver.shape:
            raise DataError(
                f"expected sender and receiver of one shape, got {tuple(sender.shape)} and "
                f"{tuple(receiver.shape)}"
            )
        sender, receiver = sender.long().contiguous(), receiver.long().contiguous()
        return cls(sender, receiver, *_sorted(receiver, num_nodes), *_sorted(sender, num_nodes))

    @classmethod
    def rows(cls, num_rows: int, device: torch.device | str = "cpu") -> Edges:
        """One edge from each row to itself: the tensor product without a graph."""
        index = torch.arange(num_rows + 1, device=device)
        row = index[:num_rows]
        return cls(row, row, index, row, index, row)

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.receiver_ptr.shape[0] - 1

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self.sender.shape[0]

    def tensors(self) -> tuple[Tensor, ...]:
        """The index tensors, in the order that the operators take them."""
        return (
            self.sender,
            self.receiver,
            self.receiver_ptr,
            self.receiver_order,
            self.sender_ptr,
            self.sender_order,
        )


def _sorted(index: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    count = torch.bincount(index, minlength=num_nodes)
    start = torch.zeros(num_nodes + 1, dtype=torch.int64, device=index.device)
    torch.cumsum(count, 0, out=start[1:])
    return start, torch.argsort(index, stable=True)


def _check_index(name: str, index: Tensor, num_nodes: int) -> None:
    if index.ndim != 1 or index.dtype not in (torch.int64, torch.int32, torch.int16):
        raise DataError(
            f"expected {name} of shape (E,) and an integer dtype, got {tuple(index.shape)} "
            f"{index.dtype}"
        )
    if index.numel():
        low, high = int(index.min()), int(index.max())
        if low < 0 or high >= num_nodes:
            raise DataError(
                f"{name} holds node {low if low < 0 else high}", allowed=f"0 to {num_nodes - 1}"
            )
