"""Access to the local shard of a tensor that is sharded over the ranks (torch's DTensor)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor._utils import compute_local_shape_and_global_offset


def local(tensor: Tensor) -> Tensor:
    """Return this rank's shard of a DTensor, or the tensor itself."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def whole(tensor: Tensor) -> Tensor:
    """Return a sharded tensor gathered from all ranks, or the tensor itself."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def own_part(
    shape: Sequence[int], mesh: DeviceMesh, placements: Sequence[Any]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the first index and the shape of this rank's part of a tensor, in every dim."""
    size, offset = compute_local_shape_and_global_offset(tuple(shape), mesh, placements)
    return tuple(offset), tuple(size)


def part_of(tensor: DTensor) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the first index and the shape of this rank's part; of size 0 on other meshes."""
    if not is_held(tensor):
        return (0,) * tensor.dim(), (0,) * tensor.dim()
    return own_part(tensor.shape, tensor.device_mesh, tensor.placements)


def cut(whole_tensor: Tensor, tensor: DTensor) -> Tensor:
    """Return this rank's part of a whole tensor that is divided like `tensor`."""
    for dim, (start, length) in enumerate(zip(*part_of(tensor), strict=True)):
        whole_tensor = whole_tensor.narrow(dim, min(start, whole_tensor.shape[dim]), length)
    return whole_tensor


def is_held(tensor: Tensor) -> bool:
    """Return whether this rank is on the mesh of a tensor; others know its shape only."""
    return not isinstance(tensor, DTensor) or tensor.device_mesh.get_coordinate() is not None


def is_first_copy(tensor: DTensor) -> bool:
    """Return whether this rank is the first of those that hold the same part of a tensor."""
    coordinate = tensor.device_mesh.get_coordinate()
    return coordinate is not None and all(
        place == 0
        for place, placement in zip(coordinate, tensor.placements, strict=True)
        if placement.is_replicate()
    )
