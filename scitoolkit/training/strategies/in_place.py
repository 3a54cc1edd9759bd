"""Collectives in place on tensors of any strides.

NCCL demands contiguous tensors and gloo does not always, so that a transposed weight or a
channels-last convolution would only fail on GPUs.
"""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor


def copy_from_first(tensor: Tensor) -> None:
    """Overwrite a tensor with the values of rank 0.

    Args:
        tensor: of the same shape and dtype on all ranks; its strides may differ between ranks.
    """
    if dist.get_world_size() == 1:
        return
    dense = tensor.detach().contiguous()
    dist.broadcast(dense, src=0)
    _written_back(dense, tensor)


def sum_over_ranks(tensor: Tensor) -> None:
    """Overwrite a tensor with its sum over the ranks.

    Args:
        tensor: of the same shape and dtype on all ranks; its strides may differ between ranks.
    """
    dense = tensor.detach().contiguous()
    dist.all_reduce(dense)
    _written_back(dense, tensor)


def _written_back(dense: Tensor, tensor: Tensor) -> None:
    if not tensor.is_contiguous():
        tensor.detach().copy_(dense)
