"""Reductions over dims and pooling over windows."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from scitoolkit.core.errors import ConfigError
from scitoolkit.deploy.builder import Builder
from scitoolkit.deploy.kinds import Lowering
from scitoolkit.deploy.loops import Body, loop_text
from scitoolkit.deploy.lowering.along import ALONG, along
from scitoolkit.deploy.lowering.elementwise import dtype_of, literal
from scitoolkit.deploy.lowering.padding import padded
from scitoolkit.deploy.values import C_TYPES, Expr, Value, View, contiguous, numel

_START = {"sum": "0", "prod": "1", "any": "0", "amax": "-INFINITY", "amin": "INFINITY"}
# Infinity as an integer is undefined in C. Truth values, 0 or 1, are kept as integers.
_START_OF_INTEGERS = {**_START, "amax": "{0}_MIN", "amin": "{0}_MAX"}
_NEXT = {
    "sum": "{total} + {x}",
    "prod": "{total} * {x}",
    "any": "{total} | ({x} != 0)",
    "amax": "stk_larger({x}, {total})",
    "amin": "stk_smaller({x}, {total})",
}


class Reductions(Lowering):
    """sum, mean, prod, any, amax, amin, var over constant dims, and operators along one dim."""

    targets: ClassVar[Sequence[str]] = (
        *("aten.sum.dim_IntList", "aten.mean.dim", "aten.mean.default", "aten.sum.default"),
        *("aten.amax.default", "aten.amin.default", "aten.var.correction"),
        *("aten.var_mean.correction", "aten.prod.default", "aten.prod.dim_int", "aten.any.default"),
        *("aten.any.dim", "aten.any.dims", "aten.max.default", "aten.min.default"),
        *ALONG,
    )

    @classmethod
    def lower(cls, builder: Builder, target: str, args: Sequence[Any], like: Any) -> Any:
        """Return the reduced value."""
        if target in ALONG:
            return along(builder, target, args, like)
        name, x = target.split(".")[1], builder.value(args[0])
        name = {"max": "amax", "min": "amin"}.get(name, name)
        requested = args[1] if len(args) > 1 and args[1] is not None else range(len(x.shape))
        result = like[0] if isinstance(like, tuple | list) else like
        if requested == [] and result.shape != x.shape:  # an empty list is that of all dims
            requested = range(len(x.shape))
        dims = sorted(
            {d % len(x.shape) for d in ([requested] if isinstance(requested, int) else requested)}
        )
        count = numel([x.shape[d] for d in dims])
        if name in ("var", "var_mean"):
            correction = 1 if args[2] is None else args[2]
            shape = tuple(result.shape)
            x = builder.view(x)
            mean = _mean(builder, x, dims, count)
            centred = Expr("{0} - {1}", (x, mean), x.shape, x.dtype)
            square = Expr("{0} * {0}", (centred,), x.shape, x.dtype)
            total = reduced(builder, square, dims, "sum", shape)
            variance = _scaled(total, max(count - correction, 0))
            return (variance, contiguous(mean.buffer, shape)) if name == "var_mean" else variance
        if name == "any" or (name in ("sum", "prod", "mean") and x.dtype != dtype_of(like)):
            text = "{0} != 0" if name == "any" else "{0}"
            x = Expr(text, (x,), x.shape, dtype_of(like))
        total = reduced(builder, x, dims, "sum" if name == "mean" else name, tuple(like.shape))
        return _scaled(total, count) if name == "mean" else total


def _mean(builder: Builder, x: Value, dims: Sequence[int], count: int) -> View:
    shape = tuple(1 if d in dims else n for d, n in enumerate(x.shape))
    return builder.store(_scaled(reduced(builder, x, dims, "sum", shape), count))


def _scaled(total: View, count: float) -> Expr:
    text = f"{{0}} / {literal(float(count), total.dtype)}"
    return Expr(text, (total,), total.shape, total.dtype)


def reduced(
    builder: Builder, x: Value, dims: Sequence[int], name: str, shape: tuple[int, ...]
) -> View:
    """Return a value reduced over dims, in C order of the remaining dims.

    Args:
        builder: the program.
        x: the value.
        dims: dims to reduce.
        name: `sum`, `amax` or `amin`.
        shape: of the result, with or without the reduced dims.
    """
    remaining = [d for d in range(len(x.shape)) if d not in dims]
    out = builder.new(tuple(x.shape[d] for d in remaining), x.dtype)
    strides = {d: out.strides[k] for k, d in enumerate(remaining)}
    into = View(out.buffer, x.shape, tuple(strides.get(d, 0) for d in range(len(x.shape))))
    starts = _START if x.dtype.startswith("float") else _START_OF_INTEGERS
    macro = C_TYPES[x.dtype].removesuffix("_t").upper()  # INT64_MIN and its kin of stdint.h
    builder.store(Expr(starts[name].replace("{0}", macro), (), out.shape, x.dtype), out)
    body = Body(into)
    line = _NEXT[name].format(total="{into}", x=body.load(x))
    text = loop_text(
        into, body.lines, f"{{into}} = {line};", body.leaves, builder.table, serial=True
    )
    builder.emit(text, out, *body.touched)
    return contiguous(out.buffer, shape)


class Pooling(Lowering):
    """Average and maximum over windows, in 1 to 3 dims."""

    targets: ClassVar[Sequence[str]] = (
        "aten.avg_pool1d.default",
        "aten.avg_pool2d.default",
        "aten.avg_pool3d.default",
        "aten.max_pool2d_with_indices.default",
        "aten.max_pool3d_with_indices.default",
    )

    @classmethod
    def lower(cls, builder: Builder, target: str, args: Sequence[Any], like: Any) -> Any:
        """Return the pooled value as an expression of strided views, one per window position."""
        x = builder.view(args[0])
        space = len(x.shape) - 2 if "1d" not in target else 1
        average = target.startswith("aten.avg")
        size, stride, padding = (_each(a, space) for a in args[1:4])
        stride = stride or size
        dilation = [1] * space if average else _each(args[4], space)
        result = like[0] if isinstance(like, tuple | list) else like
        divisor = args[6] if average and len(args) > 6 else None
        if not average and builder.view(args[0]).dtype not in ("float32", "float64"):
            raise ConfigError(f"{target} of integers", where="export to C", fix="x.float()")
        wide, counts = _windows(
            x.shape[-space:], list(result.shape[-space:]), size, stride, padding, dilation
        )
        inside = not average or not args[5]
        if any(any(pair) for pair in wide):
            fill = "0" if average else "-INFINITY"
            x = padded(builder, x, [(0, 0)] * (len(x.shape) - space) + wide, fill)
        views = []
        for place in itertools.product(*map(range, size)):
            view = x
            for axis, start in enumerate(place):
                dim = len(x.shape) - space + axis
                at = [dilation[axis] * start + stride[axis] * i for i in range(result.shape[dim])]
                view = view.take(dim, at)
            views.append(view)
        if average:
            text = " + ".join(f"{{{i}}}" for i in range(len(views)))
            shares = np.full(1, 1 / (divisor or len(views)))
            if divisor is None:
                shares = 1 / functools.reduce(np.multiply.outer, [c[inside] for c in counts])
            if np.ptp(shares) == 0:
                text = f"({text}) * {literal(float(shares.flat[0]), x.dtype)}"
                return Expr(text, tuple(views), tuple(result.shape), x.dtype)
            factor = builder.constant(np.asarray(shares, x.dtype)).expand(tuple(result.shape))
            text = f"({text}) * {{{len(views)}}}"
            return Expr(text, (*views, factor), tuple(result.shape), x.dtype)
        # A variable for each step: nested macros would double the text with every place.
        largest: Value = views[0]
        for view in views[1:]:
            largest = Expr("stk_larger({1}, {0})", (largest, view), tuple(result.shape), x.dtype)
        return (largest, None)


def _windows(
    cells: Sequence[int],
    windows: Sequence[int],
    size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> tuple[list[tuple[int, int]], list[tuple[np.ndarray, np.ndarray]]]:
    """Return the cells to add at both ends, and the cells of each window, with and without them.

    Cells beyond the padding, which windows of `ceil_mode` have, do not count.
    """
    wide, counts = [], []
    for n, count, k, step, pad, gap in zip(
        cells, windows, size, stride, padding, dilation, strict=True
    ):
        places = np.arange(count)[:, None] * step + gap * np.arange(k) - pad
        wide.append((pad, max(0, int(places.max()) - n + 1)))
        counts.append(
            ((places < n + pad).sum(1), ((places >= 0) & (places < n)).sum(1)),
        )
    return wide, counts


def _each(value: Any, count: int) -> list[Any]:
    return (
        [value] * count
        if not isinstance(value, list | tuple)
        else (list(value) * count if len(value) == 1 else list(value))
    )
