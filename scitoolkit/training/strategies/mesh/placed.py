"""Parameters of a model on the mesh of their pipeline stage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

STAGE_AXES = ("data", "expert", "x", "y", "z")


@dataclass
class PlacedParameter:
    """A parameter of the model: its place, and the tensor with which the module computes.

    Attributes:
        name: name in the model.
        module, key: the module and its attribute.
        original: the user's parameter, empty during the training.
        placed: the parameter on the mesh of its stage.
        part: this rank's part, a leaf of the autograd graph; None for another stage's parameter.
        stage: place of its stage in the pipeline.
        partial: axis over which its gradient is summed first, or an empty string.
    """

    name: str
    module: nn.Module
    key: str
    original: nn.Parameter
    placed: nn.Parameter
    part: Tensor | None
    stage: int
    partial: str = ""

    @property
    def copies(self) -> int:
        """Number of ranks of a stage that hold the same part."""
        mesh, placements = sharding_of(self.placed)
        return math.prod(
            mesh.size(dim) for dim, place in enumerate(placements) if place.is_replicate()
        )

    @property
    def divided_over_samples(self) -> bool:
        """Whether its gradient is already summed over the axis z, or expert."""
        places = sharding_of(self.placed)[1]
        return not all(places[STAGE_AXES.index(axis)].is_replicate() for axis in ("z", "expert"))


def sum_gradients(items: Sequence[PlacedParameter], group: dist.ProcessGroup) -> None:
    """Sum the gradients of parts over a group; None where no rank has one."""
    parts = [item.part for item in items if item.part is not None]
    if not parts:
        return
    reached = [part.grad is not None for part in parts]
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parts]
    if group.size() > 1:
        flags = torch.tensor(reached, dtype=parts[0].dtype, device=parts[0].device)
        flat = torch.cat([*(g.flatten() for g in gradients), flags])
        dist.all_reduce(flat, group=group)
        *pieces, flags = flat.split([*(p.numel() for p in parts), len(parts)])
        gradients = [g.view(p.shape) for g, p in zip(pieces, parts, strict=True)]
        reached = [number > 0 for number in flags.tolist()]
    for part, gradient, has in zip(parts, gradients, reached, strict=True):
        part.grad = gradient if has else None


def placed_like(placed: Tensor, part: Tensor) -> DTensor:
    """Return a part as a tensor that is divided like another one."""
    mesh, placements = sharding_of(placed)
    return DTensor.from_local(
        part, mesh, placements, run_check=False, shape=placed.shape, stride=placed.stride()
    )


def sharding_of(placed: Any) -> tuple[DeviceMesh, Any]:
    """Return the mesh and the placements of a divided tensor."""
    return placed.device_mesh, placed.placements
