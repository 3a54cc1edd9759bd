"""All modules of a surrogate joined in one, and the public names of its layers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.traced import TracedFunction


def joined(modules: Sequence[nn.Module]) -> nn.Module:
    """Return a module that contains all modules, in which shared layers stay shared."""
    root = nn.Module()
    for k, module in enumerate(modules):
        root.add_module(f"f{k}", module)
    return root.eval()


def by_public_name(root: nn.Module) -> dict[str, str]:
    """Return {public name: name in the joined module} of all modules.

    If several functions have different layers of one name, later ones keep the prefix `f1.`.
    """
    out: dict[str, str] = {}
    seen: dict[str, nn.Module] = {}
    for name, module in root.named_modules(remove_duplicate=False):
        if not name:
            continue
        short = name.partition(".")[2] or type(module).__name__
        if short not in out:
            out[short], seen[short] = name, module
        elif seen[short] is not module:
            out[name] = name
    return out


def samples_of(
    function: TracedFunction, arrays: Sequence[np.ndarray], most: int
) -> list[tuple[Tensor, ...]]:
    """Return the inputs of at most `most` evenly chosen samples, as tensors of one sample each."""
    own = [a for a, s in zip(arrays, function.inputs, strict=True) if not s.shared]
    number = len(own[0]) if own else 1
    return [
        tuple(
            torch.from_numpy(a if s.shared else a[k : k + 1])
            for a, s in zip(arrays, function.inputs, strict=True)
        )
        for k in range(0, number, -(-number // most))
    ]
