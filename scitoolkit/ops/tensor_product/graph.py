"""What the kernels on the CPU are told of a graph: index tensors, and the sizes they tell."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch._C import _functorch

from scitoolkit.core.errors import DataError


@dataclass(frozen=True)
class Graph:
    """Index tensors as `Edges.tensors` has them, with sizes as numbers, which are read once.

    Function transforms take it for a constant, because it is neither tensor nor container. Make
    one with `Graph.of`.

    Attributes:
        tensors: sender, receiver_ptr, receiver_order, chunk_ptr, sender_row, extra_ptr.
        num_nodes, num_edges, num_chunks: their number.
        num_extra: number of gradient rows besides those of the nodes.
    """

    tensors: tuple[Tensor, ...]
    num_nodes: int
    num_edges: int
    num_chunks: int
    num_extra: int

    @classmethod
    def of(cls, *tensors: Tensor) -> Graph:
        """Read the sizes of a graph's index tensors, in the order of `Edges.tensors`.

        Raises:
            DataError: index tensors that differ from element to element under torch.func.vmap.
        """
        bare = tuple(_bare(each) for each in tensors)
        sender, ptr, _, chunk_ptr, _, extra = bare
        sizes = ptr.shape[0] - 1, sender.shape[0], chunk_ptr.shape[0] - 1
        return cls(bare, *sizes, int(extra[-1]))

    def copies(self, number: int) -> Graph:
        """Return the graph of `number` copies side by side, chunks and all sums as in one."""
        sender, ptr, order, chunk_ptr, row, extra = self.tensors
        nodes, edges = self.num_nodes, self.num_edges
        copy = torch.arange(number, device=sender.device)[:, None]
        # Rows of nodes come first, then the extra rows of all copies.
        shift = torch.where(row < nodes, copy * nodes, (number - 1) * nodes + copy * self.num_extra)
        tensors = (
            (sender + copy * nodes).flatten(),
            _joined(ptr, copy * edges),
            (order + copy * edges).flatten(),
            _joined(chunk_ptr, copy * nodes),
            (row + shift).flatten(),
            _joined(extra, copy * self.num_extra),
        )
        sizes = nodes, edges, self.num_chunks, self.num_extra
        return Graph(tuple(_bare(each) for each in tensors), *(number * each for each in sizes))


def _joined(starts: Tensor, offsets: Tensor) -> Tensor:
    """Starts of all copies; the end of one is the start of the next."""
    return torch.cat([(starts[:-1] + offsets).flatten(), (starts[-1:] + offsets[-1])])


def _bare(index: Tensor) -> Tensor:
    """The tensor inside what torch.func.grad and jvp wrap everything in that is made under them."""
    while _functorch.is_gradtrackingtensor(index):
        index = _functorch.get_unwrapped(index)
    if _functorch.is_batchedtensor(index):
        raise DataError(
            "edges differ between the elements of torch.func.vmap",
            fix="build Edges outside of vmap, or one Edges of all graphs side by side",
        )
    return index
