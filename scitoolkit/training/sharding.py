"""Access to the local shard of a tensor that is sharded over the ranks (torch's DTensor)."""

from __future__ import annotations

from torch import Tensor
from torch.distributed.tensor import DTensor


def local(tensor: Tensor) -> Tensor:
    """Return this rank's shard of a DTensor, or the tensor itself."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """Return a sharded tensor gathered from all ranks, or the tensor itself."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def shard_offset(tensor: DTensor) -> int:
    """Return the first row of this rank's shard; FSDP2 splits like `torch.chunk`."""
    rank, world = tensor.device_mesh.get_local_rank(), tensor.device_mesh.size()
    return min(rank * -(-tensor.shape[0] // world), tensor.shape[0])
