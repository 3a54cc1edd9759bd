"""Reductions over dims and pooling over windows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, ClassVar

from scitoolkit.core.errors import ConfigError
from scitoolkit.deploy.builder import Builder
from scitoolkit.deploy.kinds import Lowering
from scitoolkit.deploy.loops import Body, loop_text
from scitoolkit.deploy.lowering.elementwise import literal
from scitoolkit.deploy.values import Expr, Value, View, contiguous, numel

_START = {"sum": "0", "amax": "-INFINITY", "amin": "INFINITY"}
_NEXT = {
    "sum": "{total} + {x}",
    "amax": "stk_larger({x}, {total})",
    "amin": "stk_smaller({x}, {total})",
}


class Reductions(Lowering):
    """sum, mean, amax, amin, var over constant dims."""

    targets: ClassVar[Sequence[str]] = (
        "aten.sum.dim_IntList",
        "aten.mean.dim",
        "aten.mean.default",
        "aten.sum.default",
        "aten.amax.default",
        "aten.amin.default",
        "aten.var.correction",
        "aten.var_mean.correction",
    )

    @classmethod
    def lower(cls, builder: Builder, target: str, args: Sequence[Any], like: Any) -> Any:
        """Return the reduced value."""
        name, x = target.split(".")[1], builder.value(args[0])
        requested = args[1] if len(args) > 1 and args[1] is not None else range(len(x.shape))
        dims = sorted(
            {d % len(x.shape) for d in ([requested] if isinstance(requested, int) else requested)}
        )
        count = numel([x.shape[d] for d in dims])
        if name in ("var", "var_mean"):
            correction = 1 if args[2] is None else args[2]
            shape = tuple((like[0] if name == "var_mean" else like).shape)
            x = builder.view(x)
            mean = _mean(builder, x, dims, count)
            centred = Expr("{0} - {1}", (x, mean), x.shape, x.dtype)
            square = Expr("{0} * {0}", (centred,), x.shape, x.dtype)
            total = reduced(builder, square, dims, "sum", shape)
            variance = _scaled(total, max(count - correction, 0))
            return (variance, contiguous(mean.buffer, shape)) if name == "var_mean" else variance
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
    start = Expr(_START[name], (), out.shape, x.dtype)
    builder.store(start, out)
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
        dilation, ceil_mode = (
            ([1] * space, args[4]) if average else (_each(args[4], space), args[5])
        )
        beyond = ceil_mode and any(
            (n - k) % s for n, k, s in zip(x.shape[-space:], size, stride, strict=True)
        )
        divisor = args[6] if average and len(args) > 6 else None
        if any(padding) or any(d != 1 for d in dilation) or beyond or divisor is not None:
            raise ConfigError(
                f"{target} with padding, dilation, divisor_override or windows beyond the end",
                where="export to C",
                fix="pad before it, and pool whole windows",
            )
        result = like[0] if isinstance(like, tuple | list) else like
        views = []
        for place in itertools.product(*map(range, size)):
            view = x
            for axis, start in enumerate(place):
                dim = len(x.shape) - space + axis
                at = [start + stride[axis] * i for i in range(result.shape[dim])]
                view = view.take(dim, at)
            views.append(view)
        if target.startswith("aten.avg"):
            text = " + ".join(f"{{{i}}}" for i in range(len(views)))
            text = f"({text}) * {literal(1 / len(views), x.dtype)}"
            return Expr(text, tuple(views), tuple(result.shape), x.dtype)
        # A variable for each step: nested macros would double the text with every place.
        largest: Value = views[0]
        for view in views[1:]:
            largest = Expr("stk_larger({1}, {0})", (largest, view), tuple(result.shape), x.dtype)
        return (largest, None)


def _each(value: Any, count: int) -> list[Any]:
    return (
        [value] * count
        if not isinstance(value, list | tuple)
        else (list(value) * count if len(value) == 1 else list(value))
    )
