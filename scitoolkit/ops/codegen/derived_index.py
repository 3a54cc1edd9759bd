"""Index tensors derived from others, computed once for as long as these exist.

A sparse pattern or the order of a system's atoms is read by every call of every step, and what the
kernels derive from it takes more launches than the kernel itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.weak import WeakIdKeyDictionary

V = TypeVar("V")


class DerivedIndex(Generic[V]):
    """A function of an index tensor and sizes, whose latest result is held with the tensor.

    The result must not share memory with the tensor, which would then never be freed.

    Args:
        make: the function; pure, of contents that nothing changes but operations of torch.

    Example:
        >>> starts = torch.tensor([0, 2, 5])
        >>> counts = DerivedIndex(lambda starts, factor: starts.diff() * factor)
        >>> counts(starts, 10).tolist()
        [20, 30]
    """

    def __init__(self, make: Callable[..., V]) -> None:
        self._make = make
        self._results: WeakIdKeyDictionary = WeakIdKeyDictionary()

    def __call__(self, index: Tensor, *sizes: int) -> V:
        """Return the result for a tensor and sizes."""
        if torch.compiler.is_compiling() or isinstance(index, FakeTensor) or index.is_inference():
            return self._make(index, *sizes)
        # NumPy may change a tensor on the CPU unseen; there is nothing to save there either.
        if not index.is_cuda:
            return self._make(index, *sizes)
        key = (index._version, *sizes)
        held_key, result = self._results.get(index, (None, None))
        if held_key != key:
            result = self._make(index, *sizes)
            self._results[index] = key, result
        return result
