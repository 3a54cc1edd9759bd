"""Values of a program that is lowered to C: strided views of buffers, and lazy expressions.

A view has an integer stride per dim, or a table of offsets for a dim indexed by constants, so that
slices, permutations, periodic padding and gathers at constant indices need no copy.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np

Stride: TypeAlias = int | tuple[int, ...]
C_TYPES = {
    "float32": "float",
    "float64": "double",
    "int64": "int64_t",
    "int32": "int32_t",
    "bool": "int64_t",
    "int16": "int16_t",
    "int8": "int8_t",
}
"""C type of each supported dtype; int16 and int8 also hold quantised inputs."""


@dataclass(eq=False)
class Buffer:
    """Memory of a program.

    Attributes:
        name: name in the C source.
        size: number of elements.
        dtype: a key of `C_TYPES`.
        kind: an array of the caller, workspace, or a constant.
        data: values of a constant.
    """

    name: str
    size: int
    dtype: str
    kind: Literal["input", "output", "workspace", "constant"]
    data: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class View:
    """Elements of a buffer at `offset` plus the sum of index times stride, or of table entries."""

    buffer: Buffer
    shape: tuple[int, ...]
    strides: tuple[Stride, ...]
    offset: int = 0

    @property
    def dtype(self) -> str:
        """Dtype of the elements."""
        return self.buffer.dtype

    def permute(self, dims: Sequence[int]) -> View:
        """Return the view with permuted dims."""
        return replace(
            self,
            shape=tuple(self.shape[d] for d in dims),
            strides=tuple(self.strides[d] for d in dims),
        )

    def take(self, dim: int, indices: Sequence[int]) -> View:
        """Return the view of constant indices along a dim."""
        offsets = [_at(self.strides[dim], i) for i in indices]
        steps = set(np.diff(offsets).tolist())
        stride: Stride = steps.pop() if len(steps) == 1 else tuple(offsets)
        start = 0
        if not isinstance(stride, tuple):
            start = offsets[0]
        elif len(offsets) == 1:
            stride, start = 0, offsets[0]
        return replace(
            self,
            shape=_set(self.shape, dim, len(offsets)),
            strides=_set(self.strides, dim, stride),
            offset=self.offset + start,
        )

    def reshape(self, shape: Sequence[int]) -> View | None:
        """Return the elements in another shape; None if that needs a copy."""
        dims = [(n, s) for n, s in zip(self.shape, self.strides, strict=True) if n != 1]
        strides: list[Stride] = []
        for size in reversed(shape):
            if size == 1:
                strides.append(0)
                continue
            while dims and dims[-1][0] < size and len(dims) > 1 and _merges(dims[-2], dims[-1]):
                (outer, _), (inner, stride) = dims[-2:]
                dims[-2:] = [(outer * inner, stride)]
            if not dims or dims[-1][0] % size:
                return None
            length, stride = dims.pop()
            strides.append(stride)
            if length != size:
                if isinstance(stride, tuple):
                    return None
                dims.append((length // size, stride * size))
        return replace(self, shape=tuple(shape), strides=tuple(reversed(strides)))

    def expand(self, shape: Sequence[int]) -> View:
        """Return the view broadcast to a shape."""
        missing = len(shape) - len(self.shape)
        strides: list[Stride] = [0] * missing
        for old, new, stride in zip(self.shape, shape[missing:], self.strides, strict=True):
            strides.append(stride if old == new else 0)
        return replace(self, shape=tuple(shape), strides=tuple(strides))


@dataclass(frozen=True, eq=False)
class Expr:
    """Elementwise expression that is computed when it is stored.

    Attributes:
        text: C expression of its arguments `{0}`, `{1}`, ...
        args: values of shapes that broadcast to `shape`.
        shape: of the result.
        dtype: of the result.
        source: view from which the expression loads at computed indices; its pointer is
            `{source}` in the text.
    """

    text: str
    args: tuple[Value, ...]
    shape: tuple[int, ...]
    dtype: str
    source: View | None = None

    def rearranged(self, change: Callable[[View], View | None]) -> Expr | None:
        """Apply a change of view to all arguments; None if it needs a copy."""
        out: list[Value] = []
        for arg in self.args:
            if isinstance(arg, Expr):
                whole = replace(arg, shape=self.shape)
                changed: Value | None = whole.rearranged(change)
            else:
                changed = change(arg.expand(self.shape))
            if changed is None:
                return None
            out.append(changed)
        return replace(self, args=tuple(out), shape=out[0].shape) if out else None


Value: TypeAlias = View | Expr


def contiguous(buffer: Buffer, shape: Sequence[int]) -> View:
    """Return the C-ordered view of a buffer."""
    return ordered(buffer, shape, range(len(shape)))


def ordered(buffer: Buffer, shape: Sequence[int], order: Sequence[int], pad: int = 0) -> View:
    """Return a dense view with memory order `order` of dims, the last of them padded to `pad`."""
    strides, step = [0] * len(shape), 1
    for dim in reversed(order):
        strides[dim] = step
        step *= pad if step == 1 and pad else shape[dim]
    return View(buffer, tuple(shape), tuple(strides))


def memory_order(view: View) -> list[int]:
    """Return the dims in order of decreasing stride."""
    steps = [abs(_at(s, 1)) if n > 1 else 0 for n, s in zip(view.shape, view.strides, strict=True)]
    return sorted(range(len(steps)), key=lambda d: -steps[d])


def numel(shape: Sequence[int]) -> int:
    """Return the number of elements of a shape."""
    return math.prod(shape)


def _at(stride: Stride, index: int) -> int:
    if isinstance(stride, tuple):
        return stride[index]
    return stride * index


def _merges(outer: tuple[int, Stride], inner: tuple[int, Stride]) -> bool:
    (_, a), (n, b) = outer, inner
    return isinstance(a, int) and isinstance(b, int) and a == b * n


def _set(values: tuple, dim: int, value: object) -> tuple:
    return (*values[:dim], value, *values[dim + 1 :])
