"""Edges of a graph, sorted and partitioned for deterministic parallel kernels."""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from scitoolkit.core.errors import DataError
from scitoolkit.ops.tensor_product.graph import EdgeTensors

EDGES_PER_CHUNK = 1024
# Without a graph: the gradients of a chunk stay in the L2 cache until they are added to the result.
ROWS_PER_CHUNK = 64
MOST_CHUNKS = 1 << 12


@dataclass(frozen=True)
class EdgePart:
    """All edges of a range of receivers, for kernels that process one part at a time.

    Attributes:
        index: the edges of the part by receiver; a slice if they are contiguous.
        graph: argument of the kernels, with edges numbered within the part. Kernels access only the
            rows of the part's receivers, and the gradient rows of all senders.
    """

    index: Tensor | slice
    graph: EdgeTensors


@dataclass(frozen=True)
class Edges:
    """Edges from senders to receivers with the index tensors of deterministic parallel kernels.

    Build one per neighbour list and reuse it in every layer. Edges may be in any order; sorted by
    receiver is fastest. Receivers are partitioned into chunks with about equally many edges; the
    number of chunks depends only on the number of edges. A chunk accumulates the gradients of its
    senders in private rows, one slot per sender, and chunks add these to the result one after
    another. All sorts are stable, so equal input gives bit-equal output.

    Attributes:
        sender, receiver: node of each edge, shape (E,), int64.
        receiver_ptr: start of each node's edges in `receiver_order`, shape (N + 1,), int64.
        receiver_order: edges sorted by receiver, shape (E,), int64.
        chunk_ptr: first receiver of each chunk, shape (C + 1,), int64.
        slot: index of each edge's sender among the senders of its chunk, shape (E,), int64.
        slot_ptr: first slot of each chunk, shape (C + 1,), int64.
        slot_node: sender of each slot, ascending within a chunk, shape (S,), int64.

    On a GPU, whose kernels do without them, there are no chunks and slots.

    Example:
        >>> edges = Edges.build(torch.tensor([1, 0, 0]), torch.tensor([0, 2, 0]), num_nodes=3)
        >>> edges.receiver_ptr.tolist(), edges.receiver_order.tolist()
        ([0, 2, 2, 3], [0, 2, 1])
    """

    sender: Tensor
    receiver: Tensor
    receiver_ptr: Tensor
    receiver_order: Tensor
    chunk_ptr: Tensor
    slot: Tensor
    slot_ptr: Tensor
    slot_node: Tensor

    @classmethod
    def build(cls, sender: Tensor, receiver: Tensor, num_nodes: int) -> Edges:
        """Check and sort the edges of a graph.

        Args:
            sender: sending node of each edge, shape (E,), int16, int32 or int64.
            receiver: receiving node of each edge, likewise.
            num_nodes: number of nodes; nodes without edges are allowed.

        Raises:
            DataError: different shapes, another dtype, or an index out of range.
        """
        _check_indices({"sender": sender, "receiver": receiver}, num_nodes)
        if sender.shape != receiver.shape:
            raise DataError(
                f"expected sender and receiver of one shape, got {tuple(sender.shape)} and "
                f"{tuple(receiver.shape)}"
            )
        sender, receiver = sender.long().contiguous(), receiver.long().contiguous()
        ptr, order = _sorted(receiver, num_nodes)
        if sender.is_cuda:
            # The kernels for GPUs have no chunks; making these would wait for the device.
            none = sender.new_zeros(1)
            return cls(sender, receiver, ptr, order, none, none[:0], none, none[:0])
        chunk_ptr, chunk_of_node = _chunks(ptr)
        slots = _slots(sender, chunk_of_node[receiver], chunk_ptr.shape[0] - 1, num_nodes)
        return cls(sender, receiver, ptr, order, chunk_ptr, *slots)

    @classmethod
    def rows(cls, num_rows: int, device: torch.device | str = "cpu") -> Edges:
        """Return one edge from each row to itself: the tensor product without a graph."""
        index = torch.arange(num_rows + 1, device=device)
        row = index[:num_rows]
        chunk_ptr, chunk_of_node = _chunks(index, ROWS_PER_CHUNK)
        slot = row - chunk_ptr[chunk_of_node]
        return cls(row, row, index, row, chunk_ptr, slot, chunk_ptr, row)

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.receiver_ptr.shape[0] - 1

    @property
    def num_edges(self) -> int:
        """Number of edges."""
        return self.sender.shape[0]

    @functools.cached_property
    def by_sender(self) -> tuple[Tensor, Tensor]:
        """(sender_ptr, sender_order): edges sorted by sender, like those by receiver.

        GPU kernels sum the gradients of senders in this order.
        """
        return _sorted(self.sender, self.num_nodes)

    @functools.cached_property
    def _parts(self) -> dict[int, list[EdgePart]]:
        return {}

    def parts(self, most: int) -> list[EdgePart]:
        """Return a partition of the edges; it is cached.

        Args:
            most: maximum number of edges per part, at least 1; a part of one receiver may have
                more.
        """
        if most not in self._parts:
            self._parts[most] = _cut(self, most)
        return self._parts[most]

    @functools.cached_property
    def graph(self) -> EdgeTensors:
        """Argument of the CPU kernels; sizes are read from the tensors on first access."""
        return EdgeTensors.of(*self.tensors())

    def tensors(self) -> tuple[Tensor, ...]:
        """Return the index tensors in the order of the CPU operators' arguments."""
        return (
            self.sender,
            self.receiver_ptr,
            self.receiver_order,
            self.chunk_ptr,
            self.slot,
            self.slot_ptr,
            self.slot_node,
        )


def _cut(edges: Edges, most: int) -> list[EdgePart]:
    ptr, order, parts = edges.receiver_ptr, edges.receiver_order, []
    ordered = bool((order == torch.arange(len(order), device=order.device)).all())
    begin = 0
    while begin < edges.num_nodes:
        # The last receiver with at most `most` edges up to it, but at least one receiver.
        end = int(torch.searchsorted(ptr, ptr[begin] + most, right=True)) - 1
        end = min(max(end, begin + 1), edges.num_nodes)
        first, last = int(ptr[begin]), int(ptr[end])
        mine = order[first:last]
        starts = (ptr - first).clamp(0, last - first)
        chunk_ptr, chunk_of_node = _chunks(starts, EDGES_PER_CHUNK // 8)
        chunk_ptr = chunk_ptr.clamp(begin, end)
        sender = edges.sender[mine]
        chunk = chunk_of_node[edges.receiver[mine]]
        slots = _slots(sender, chunk, len(chunk_ptr) - 1, edges.num_nodes)
        places = torch.arange(last - first, device=order.device)
        graph = EdgeTensors.of(sender, starts, places, chunk_ptr, *slots)
        parts.append(EdgePart(slice(first, last) if ordered else mine, graph))
        begin = end
    return parts


def _sorted(index: Tensor, num_nodes: int) -> tuple[Tensor, Tensor]:
    # searchsorted instead of bincount, which waits for a GPU and which torch.compile cannot trace.
    ordered, order = torch.sort(index, stable=True)
    nodes = torch.arange(num_nodes + 1, device=index.device)
    return torch.searchsorted(ordered, nodes), order


def _starts(count: Tensor) -> Tensor:
    start = count.new_zeros(count.shape[0] + 1)
    torch.cumsum(count, 0, out=start[1:])
    return start


def _chunks(receiver_ptr: Tensor, edges_per_chunk: int = EDGES_PER_CHUNK) -> tuple[Tensor, Tensor]:
    """Partition nodes into chunks with about equally many edges; their number is a power of two."""
    num_nodes, num_edges = receiver_ptr.shape[0] - 1, int(receiver_ptr[-1])
    wanted = round(math.log2(max(1, num_edges / edges_per_chunk)))
    number = min(2**wanted, MOST_CHUNKS)
    targets = torch.arange(number + 1, device=receiver_ptr.device) * num_edges // number
    start = torch.searchsorted(receiver_ptr, targets)
    start[0], start[-1] = 0, num_nodes
    chunk_of_node = torch.repeat_interleave(
        torch.arange(number, device=start.device), start.diff(), output_size=num_nodes
    )
    return start, chunk_of_node


def _slots(
    sender: Tensor, chunk: Tensor, num_chunks: int, num_nodes: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Return (slot, slot_ptr, slot_node) of `Edges`: the numbered senders of each chunk."""
    nodes = max(num_nodes, 1)
    pairs, edge_pair = torch.unique(chunk * nodes + sender, return_inverse=True)
    slot_ptr = _starts(torch.bincount(pairs // nodes, minlength=num_chunks))
    return edge_pair - slot_ptr[chunk], slot_ptr, pairs % nodes


def _check_indices(indices: dict[str, Tensor], num_nodes: int) -> None:
    """Check that all nodes exist; the host waits for a GPU only once."""
    for name, index in indices.items():
        if index.ndim != 1 or index.dtype not in (torch.int64, torch.int32, torch.int16):
            raise DataError(
                f"expected {name} of shape (E,) and an integer dtype, got {tuple(index.shape)} "
                f"{index.dtype}"
            )
    filled = {name: index for name, index in indices.items() if index.numel()}
    if not filled:
        return
    limits = torch.stack([torch.stack(index.aminmax()).long() for index in filled.values()])
    for name, (low, high) in zip(filled, limits.tolist(), strict=True):
        if low < 0 or high >= num_nodes:
            raise DataError(
                f"{name} contains node {low if low < 0 else high}", allowed=f"0 to {num_nodes - 1}"
            )
