"""Convolutions in 1 to 3 dims as matrix products, with channels last in memory."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.lazy import LazyModule
from scitoolkit.deploy import tiles
from scitoolkit.deploy.builder import Builder
from scitoolkit.deploy.kinds import Lowering
from scitoolkit.deploy.lowering.reductions import reduced
from scitoolkit.deploy.values import Expr, Stride, Value, View

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule("torch")  # listing the lowerings needs none

MOST_GROUPS = 16
"""Largest number of groups that are separate products; more must be depthwise."""


class ConvolutionRule(Lowering):
    """Convolutions with constant kernels: stride, dilation, zero padding, groups; transposed."""

    targets: ClassVar[Sequence[str]] = ("aten.convolution.default",)

    @classmethod
    def lower(cls, builder: Builder, target: str, args: Sequence[Any], like: Any) -> Value:
        """Return the convolved view (B, C, *space), channels last in memory."""
        x, weight, bias, stride, padding, dilation, transposed, _, groups = args
        if not isinstance(weight, torch.Tensor):
            raise ConfigError(
                "a convolution with a computed kernel", where="export to C", fix="x.unfold and sums"
            )
        kernel = weight.numpy()
        if transposed:
            padded = _spread(builder, x, kernel.shape, args)
            kernel, stride = _turned(kernel, groups), [1] * len(stride)
        else:
            padded = _padded(builder, x, padding)
        added = None if bias is None else bias.numpy()
        geometry = (list(stride), list(dilation), list(like.shape[2:]))
        if groups == 1:
            return _dense(builder, padded, kernel, added, *geometry)
        if groups == padded.shape[1] == len(kernel):
            return _depthwise(builder, padded, kernel, added, *geometry)
        if groups > MOST_GROUPS:
            raise ConfigError(
                f"a convolution of {groups} groups of several channels",
                where="export to C",
                allowed=f"{MOST_GROUPS} groups",
            )
        return _grouped(builder, padded, kernel, added, groups, like, *geometry)


def _spread(builder: Builder, x: Any, kernel: Sequence[int], args: Sequence[Any]) -> View:
    """Return the input of a transposed convolution with zeros between its cells and around them.

    A convolution by the turned kernel without stride then has the results of the transposed one.
    """
    _, _, _, stride, padding, dilation, _, more, _ = args
    value = builder.view(x)
    shape, places = list(value.shape[:2]), []
    for n, k, s, p, d, m in zip(
        value.shape[2:], kernel[2:], stride, padding, dilation, more, strict=True
    ):
        low = d * (k - 1) - p
        size = (n - 1) * s + 1 + 2 * low + m
        shape.append(size)
        places.append([(i, low + i * s) for i in range(n) if 0 <= low + i * s < size])
    into = builder.new(shape, value.dtype, [0, *range(2, len(shape)), 1])
    builder.store(Expr("0", (), tuple(shape), value.dtype), into)
    inner = into
    for dim, pairs in enumerate(places, 2):
        value = value.take(dim, [i for i, _ in pairs])
        inner = inner.take(dim, [i for _, i in pairs])
    builder.store(value, inner)
    return into


def _turned(kernel: np.ndarray, groups: int) -> np.ndarray:
    """Return the kernel (in, out of a group, *) of a transposed convolution for a plain one."""
    parts = np.split(np.flip(kernel, tuple(range(2, kernel.ndim))), groups)
    return np.ascontiguousarray(np.concatenate([np.swapaxes(part, 0, 1) for part in parts]))


def _padded(builder: Builder, x: Any, padding: Sequence[int]) -> View:
    """Return the zero-padded input, channels last in memory."""
    value = builder.value(x)
    shape = value.shape
    last = [0, *range(2, len(shape)), 1]
    if not any(padding):
        if (
            isinstance(value, View)
            and value.strides[1] == 1
            and all(isinstance(s, int) for s in value.strides)
        ):
            return value
        return builder.store(value, builder.new(shape, value.dtype, last))
    wide = (*shape[:2], *(n + 2 * p for n, p in zip(shape[2:], padding, strict=True)))
    into = builder.new(wide, value.dtype, last)
    inner = into
    zero = builder.constant(np.zeros(1, value.dtype))
    for dim, (size, pad) in enumerate(zip(shape[2:], padding, strict=True), 2):
        for border in (range(pad), range(pad + size, size + 2 * pad)):
            if pad:
                edge = inner.take(dim, border)
                builder.store(zero.expand(edge.shape), edge)
        inner = inner.take(dim, range(pad, pad + size))
    builder.store(value, inner)
    return into


def _dense(
    builder: Builder,
    x: View,
    kernel: np.ndarray,
    bias: np.ndarray | None,
    stride: list[int],
    dilation: list[int],
    space: list[int],
) -> View:
    """Return the convolution; last dim of the window and channels form one segment."""
    steps = [s for s in x.strides if isinstance(s, int)]
    channels, sizes = kernel.shape[1], kernel.shape[2:]
    joined = dilation[-1] == 1 and steps[-1] == channels and len(sizes) > 0
    outer = sizes[:-1] if joined else sizes
    segments = [
        sum(i * d * s for i, d, s in zip(at, dilation, steps[2:], strict=False))
        for at in itertools.product(*map(range, outer))
    ]
    matrix = np.moveaxis(kernel, (0, 1), (-1, -2)).reshape(-1, len(kernel))
    strides = [steps[0], *(s * t for s, t in zip(steps[2:], stride, strict=True))]
    rows = View(x.buffer, (x.shape[0], *space), tuple(strides), x.offset)
    inner = space[-1] if x.shape[0] * np.prod(space) != space[-1] else int(np.prod(space))
    weights = tiles.constant_weights(builder, np.ascontiguousarray(matrix), bias, inner)
    window = tiles.Window(channels * (sizes[-1] if joined else 1), 1, segments)
    out = tiles.product(builder, rows, range(len(rows.shape)), window, weights)
    return out.permute([0, len(space) + 1, *range(1, len(space) + 1)])


def _depthwise(
    builder: Builder,
    x: View,
    kernel: np.ndarray,
    bias: np.ndarray | None,
    stride: list[int],
    dilation: list[int],
    space: list[int],
) -> Value:
    """Return the depthwise convolution: a sum over the window, channels innermost."""
    taps = int(np.prod(kernel.shape[2:]))
    steps = [s for s in x.strides if isinstance(s, int)]
    window = tuple(
        sum(i * d * s for i, d, s in zip(at, dilation, steps[2:], strict=True))
        for at in itertools.product(*map(range, kernel.shape[2:]))
    )
    moves = (s * t for s, t in zip(steps[2:], stride, strict=True))
    strides: list[Stride] = [steps[0], *moves, window, steps[1]]
    shape = (x.shape[0], *space, taps, x.shape[1])
    places = View(x.buffer, shape, tuple(strides), x.offset)
    factors = builder.constant(np.ascontiguousarray(kernel.reshape(-1, taps).T)).expand(shape)
    value = Expr("{0} * {1}", (places, factors), shape, x.dtype)
    total = reduced(builder, value, [len(shape) - 2], "sum", (*shape[:-2], shape[-1]))
    out = total.permute([0, len(space) + 1, *range(1, len(space) + 1)])
    if bias is None:
        return out
    line = builder.constant(bias.reshape(-1, *[1] * len(space)))
    return Expr("{0} + {1}", (out, line), out.shape, out.dtype)


def _grouped(
    builder: Builder,
    x: View,
    kernel: np.ndarray,
    bias: np.ndarray | None,
    groups: int,
    like: Any,
    stride: list[int],
    dilation: list[int],
    space: list[int],
) -> View:
    into = builder.new(tuple(like.shape), x.dtype, [0, *range(2, len(like.shape)), 1])
    width_in, width_out = x.shape[1] // groups, len(kernel) // groups
    for g in range(groups):
        part = slice(g * width_out, (g + 1) * width_out)
        group_result = _dense(
            builder,
            x.take(1, range(g * width_in, (g + 1) * width_in)),
            kernel[part],
            None if bias is None else bias[part],
            stride,
            dilation,
            space,
        )
        builder.store(group_result, into.take(1, range(part.start, part.stop)))
    return into
