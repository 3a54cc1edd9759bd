"""Collectives of gloo that demand of tensors what NCCL demands."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class AsNccl(TorchDispatchMode):
    """Context in which every collective, also those of FSDP2, refuses non-contiguous tensors.

    Attributes:
        count: collectives that ran.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace in ("c10d", "_c10d_functional"):
            self.count += 1
            for tensor in tree_leaves([args, kwargs]):
                if isinstance(tensor, torch.Tensor) and not tensor.is_contiguous():
                    raise ValueError(f"Tensors must be contiguous: {func}, {tensor.stride()}")
        return func(*args, **(kwargs or {}))
