"""Norms of whole tensors that may be sharded over ranks."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import DTensor


def whole_norms(*lists: Sequence[Tensor], like: Sequence[Tensor]) -> list[Tensor]:
    """Return the 2-norms of the whole tensors of each list, with one all-reduce.

    Args:
        lists: this rank's shards, tensor by tensor.
        like: parameters that are sharded like the tensors.

    Returns:
        A tensor of shape (len(list),) for each list, in the dtype of the shards.

    Example:
        >>> weight = torch.tensor([3.0, 4.0])
        >>> whole_norms([weight], like=[weight])
        [tensor([5.])]
    """
    norms = torch.stack([_norms(parts) for parts in lists])
    # Squares of float32 norms above 1.8e19 overflow.
    squares = norms.double().square() * _shares(like, norms.device)
    first = next((p for p in like if isinstance(p, DTensor)), None)
    if first is not None:
        dist.all_reduce(squares, group=first.device_mesh.get_group())
    return list(squares.sqrt().to(norms.dtype))


def _norms(parts: Sequence[Tensor]) -> Tensor:
    # `_foreach_norm` returns 0 for an empty shard.
    norms = torch.stack(torch._foreach_norm(list(parts)))
    if not norms.isfinite().all():  # float64 takes several times as long
        norms = torch.stack(torch._foreach_norm(list(parts), 2, torch.float64)).to(norms.dtype)
    return norms


def _shares(like: Sequence[Tensor], device: torch.device) -> Tensor:
    # A replicated tensor must count once in the sum over the ranks.
    split = torch.tensor([isinstance(p, DTensor) for p in like], device=device)
    return torch.where(split, 1.0, 1.0 / _ranks(like))


def _ranks(like: Sequence[Tensor]) -> int:
    return next((p.device_mesh.size() for p in like if isinstance(p, DTensor)), 1)


def trust_ratio(weights: Tensor, steps: Tensor) -> Tensor:
    """Return ``weights / steps`` elementwise, 1 where either norm is 0.

    Example:
        >>> trust_ratio(torch.tensor([2.0, 0.0, 2.0]), torch.tensor([4.0, 1.0, 0.0]))
        tensor([0.5000, 1.0000, 1.0000])
    """
    usable = (weights > 0) & (steps > 0)
    return torch.where(usable, weights / torch.where(usable, steps, 1.0), 1.0)
