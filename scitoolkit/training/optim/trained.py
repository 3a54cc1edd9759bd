"""Iteration over the groups of an optimizer and their parameters with a gradient."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor
from torch.optim import Optimizer


def trained_groups(
    optimizer: Optimizer,
) -> Iterator[tuple[dict[str, Any], list[Tensor], list[Tensor]]]:
    """Yield each group of an optimizer, its parameters that have a gradient, and the gradients.

    Groups without gradients are skipped.

    Example:
        >>> import torch
        >>> weights = [torch.ones(2, requires_grad=True) for _ in range(2)]
        >>> weights[0].sum().backward()
        >>> [gradients for _, _, gradients in trained_groups(torch.optim.SGD(weights))]
        [[tensor([1., 1.])]]
    """
    for group in optimizer.param_groups:
        trained = [p for p in group["params"] if p.grad is not None]
        if trained:
            yield group, trained, [p.grad for p in trained]
