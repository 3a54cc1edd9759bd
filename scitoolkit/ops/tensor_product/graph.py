"""Graph index tensors and sizes passed to the CPU kernels."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch._C import _functorch

from scitoolkit.core.errors import DataError


@dataclass(frozen=True)
class EdgeTensors:
    """Index tensors of `Edges.tensors` with their sizes as Python numbers.

    torch.func treats it as a constant, because it is neither a tensor nor a container. Create one
    with `EdgeTensors.of`.

    Attributes:
        tensors: sender, receiver_ptr, receiver_order, chunk_ptr, slot, slot_ptr, slot_node.
        num_nodes, num_edges, num_chunks: sizes of the graph.
        most_slots: the largest number of slots of a chunk.
    """

    tensors: tuple[Tensor, ...]
    num_nodes: int
    num_edges: int
    num_chunks: int
    most_slots: int

    @classmethod
    def of(cls, *tensors: Tensor) -> EdgeTensors:
        """Return the graph of index tensors in the order of `Edges.tensors`.

        Raises:
            DataError: index tensors that are batched by torch.func.vmap.
        """
        bare = tuple(_bare(tensor) for tensor in tensors)
        sender, ptr, _, chunk_ptr, _, slot_ptr, _ = bare
        sizes = ptr.shape[0] - 1, sender.shape[0], chunk_ptr.shape[0] - 1
        return cls(bare, *sizes, int(slot_ptr.diff().max()))

    def copies(self, number: int) -> EdgeTensors:
        """Return the disjoint union of `number` copies, each with the chunks of the original."""
        sender, ptr, order, chunk_ptr, slot, slot_ptr, slot_node = self.tensors
        nodes, edges = self.num_nodes, self.num_edges
        copy = torch.arange(number, device=sender.device)[:, None]
        tensors = (
            (sender + copy * nodes).flatten(),
            _joined(ptr, copy * edges),
            (order + copy * edges).flatten(),
            _joined(chunk_ptr, copy * nodes),
            slot.repeat(number),
            _joined(slot_ptr, copy * slot_node.shape[0]),
            (slot_node + copy * nodes).flatten(),
        )
        sizes = (number * count for count in (nodes, edges, self.num_chunks))
        return EdgeTensors(tuple(_bare(tensor) for tensor in tensors), *sizes, self.most_slots)  # type: ignore[call-arg]


def _joined(starts: Tensor, offsets: Tensor) -> Tensor:
    """Return the starts of all copies; the end of one copy is the start of the next."""
    return torch.cat([(starts[:-1] + offsets).flatten(), (starts[-1:] + offsets[-1])])


def _bare(index: Tensor) -> Tensor:
    """Unwrap a tensor created under torch.func.grad or jvp."""
    while _functorch.is_gradtrackingtensor(index):
        index = _functorch.get_unwrapped(index)
    if _functorch.is_batchedtensor(index):
        raise DataError(
            "edges differ between the elements of torch.func.vmap",
            fix="build Edges outside of vmap, or one Edges of the disjoint union of all graphs",
        )
    return index
