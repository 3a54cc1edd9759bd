"""View operators, concatenation and assignment to slices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from scitoolkit.core.lazy import LazyModule
from scitoolkit.deploy.builder import Builder
from scitoolkit.deploy.kinds import Lowering
from scitoolkit.deploy.lowering.elementwise import dtype_of, literal
from scitoolkit.deploy.lowering.padding import padded
from scitoolkit.deploy.values import Expr, Stride, Value, View, contiguous, memory_order

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule("torch")  # listing the lowerings needs none


class Views(Lowering):
    """Reshapes, permutations, slices and broadcasts of views and lazy expressions."""

    targets: ClassVar[Sequence[str]] = (
        *("aten.view.default", "aten._unsafe_view.default", "aten.reshape.default"),
        *("aten.permute.default", "aten.transpose.int", "aten.slice.Tensor", "aten.select.int"),
        *("aten.unsqueeze.default", "aten.squeeze.dims", "aten.squeeze.dim", "aten.expand.default"),
        *("aten.clone.default", "aten.alias.default", "aten.flip.default", "aten.roll.default"),
        *("aten.index_select.default", "aten.split_with_sizes.default", "aten.split.Tensor"),
        "aten.detach.default",
    )

    @classmethod
    def lower(cls, builder: Builder, target: str, args: Sequence[Any], like: Any) -> Any:
        """Return the view."""
        name, x = target.split(".")[1], builder.value(args[0])
        if name.startswith("split"):
            starts, out = 0, []
            for part in like:
                dim = (args[2] or 0) % len(x.shape)
                out.append(_apply(builder, x, _slice(dim, starts, starts + part.shape[dim], 1)))
                starts += part.shape[dim]
            return tuple(out)
        if name in ("view", "_unsafe_view", "reshape", "squeeze", "unsqueeze"):
            return reshaped(builder, x, tuple(like.shape))
        change = _change(name, args, x.shape, tuple(like.shape))
        return x if change is None else _apply(builder, x, change)


def _change(
    name: str, args: Sequence[Any], shape: tuple[int, ...], new: tuple[int, ...]
) -> Callable[[View], View | None] | None:
    if name == "permute":
        return lambda v: v.permute([d % len(shape) for d in args[1]])
    if name == "transpose":
        order = list(range(len(shape)))
        a, b = args[1] % len(shape), args[2] % len(shape)
        order[a], order[b] = b, a
        return lambda v: v.permute(order)
    if name == "expand":
        return lambda v: v.expand(new)
    if name == "select":
        dim = args[1] % len(shape)
        index = args[2] % shape[dim]
        return lambda v: v.take(dim, [index]).reshape(new)
    if name == "slice":
        dim = (args[1] or 0) % len(shape)
        start, stop, _ = slice(args[2], args[3]).indices(shape[dim])
        return _slice(dim, start, stop, args[4] or 1)
    if name == "index_select":
        return lambda v: v.take(args[1] % len(shape), args[2].tolist())
    if name == "flip":
        return _several([(d % len(shape), range(shape[d % len(shape)])[::-1]) for d in args[1]])
    if name == "roll":
        turned = [(d % len(shape), s) for d, s in zip(args[2], args[1], strict=True)]
        return _several([(d, [(i - s) % shape[d] for i in range(shape[d])]) for d, s in turned])
    return None


def _several(changes: Sequence[tuple[int, Sequence[int]]]) -> Callable[[View], View]:
    def change(view: View) -> View:
        for dim, indices in changes:
            view = view.take(dim, indices)
        return view

    return change


def _slice(dim: int, start: int, stop: int, step: int) -> Callable[[View], View]:
    return lambda v: v.take(dim, range(start, stop, step))


def _apply(builder: Builder, x: Value, change: Callable[[View], View | None]) -> Value:
    changed = x.rearranged(change) if isinstance(x, Expr) else change(x)
    if changed is None:
        changed = change(builder.store(x))
    assert changed is not None
    return changed


def reshaped(builder: Builder, x: Value, shape: tuple[int, ...]) -> Value:
    """Return a value in another shape, with a copy only if strides cannot express it."""
    changed: Value | None
    if isinstance(x, Expr):
        changed = x.rearranged(lambda view: view.reshape(shape))
    else:
        changed = x.reshape(shape)
    if changed is not None:
        return changed
    stored = builder.store(x, builder.new(x.shape, x.dtype))
    return contiguous(stored.buffer, shape)


class Cat(Lowering):
    """Concatenation along a dim: into one buffer, or as a table of offsets in one view."""

    targets: ClassVar[Sequence[str]] = ("aten.cat.default", "aten.stack.default")

    @classmethod
    def lower(cls, builder: Builder, target: str, args: Sequence[Any], like: Any) -> Value:
        """Return the concatenated view."""
        dim = (args[1] or 0) % len(like.shape)
        parts = [builder.value(p) for p in args[0] if not isinstance(p, torch.Tensor) or p.numel()]
        if target == "aten.stack.default":
            parts = [reshaped(builder, p, (*p.shape[:dim], 1, *p.shape[dim:])) for p in parts]
        if len(parts) == 1:
            return parts[0]
        whole = _one_view(parts, dim)
        if whole is not None:
            return whole
        largest = max((p for p in parts), key=lambda p: _weight(p))
        order = memory_order(largest) if isinstance(largest, View) else _expr_order(largest)
        into = builder.new(tuple(like.shape), dtype_of(like), order)
        start = 0
        for part in parts:
            builder.store(part, into.take(dim, range(start, start + part.shape[dim])))
            start += part.shape[dim]
        return into


class Assign(Lowering):
    """Assignments to slices of a tensor, and borders: a copy with the slice replaced."""

    targets: ClassVar[Sequence[str]] = (
        "aten.copy.default",
        "aten.select_scatter.default",
        "aten.slice_scatter.default",
        "aten.constant_pad_nd.default",
    )

    @classmethod
    def lower(cls, builder: Builder, target: str, args: Sequence[Any], like: Any) -> Value:
        """Return the assigned view."""
        if target == "aten.constant_pad_nd.default":
            x = builder.view(args[0])
            pairs = list(zip(args[1][::2], args[1][1::2], strict=True))[::-1]
            fill = literal(args[2] or 0, x.dtype)
            return padded(builder, x, [(0, 0)] * (len(x.shape) - len(pairs)) + pairs, fill)
        source, shape = builder.value(args[1]), tuple(like.shape)
        if target == "aten.copy.default":
            return _apply(builder, source, lambda v: v.expand(shape))
        into = builder.store(builder.value(args[0]), builder.new(shape, dtype_of(like)))
        dim = (args[2] or 0) % len(shape)
        if "select" in target:
            index = args[3] % shape[dim]
            part = into.take(dim, [index])
            source = reshaped(builder, source, part.shape)
        else:
            start, stop, _ = slice(args[3], args[4]).indices(shape[dim])
            part = into.take(dim, range(start, stop, args[5] or 1))
        builder.store(source, part)
        return into


def _weight(value: Value) -> int:
    leaves = [value] if isinstance(value, View) else list(value.args)
    return max(
        (v.buffer.size for v in leaves if isinstance(v, View) and v.buffer.kind != "constant"),
        default=0,
    )


def _expr_order(value: Expr) -> list[int]:
    views = [a for a in value.args if isinstance(a, View) and a.shape == value.shape]
    best = max(views, key=lambda v: v.buffer.size, default=None)
    return list(range(len(value.shape))) if best is None else memory_order(best)


def _one_view(parts: Sequence[Value], dim: int) -> View | None:
    """Return the concatenation as a view with a table along `dim`; None if that is impossible."""
    views = [p for p in parts if isinstance(p, View)]
    first = views[0] if views else None
    if first is None or len(views) < len(parts):
        return None
    offsets: list[int] = []
    for view in views:
        others = [d for d in range(len(view.shape)) if d != dim and view.shape[d] != 1]
        if view.buffer is not first.buffer or any(
            view.strides[d] != first.strides[d] for d in others
        ):
            return None
        stride: Stride = view.strides[dim]
        steps = (
            stride if isinstance(stride, tuple) else [stride * i for i in range(view.shape[dim])]
        )
        offsets += [view.offset + s for s in steps]
    if first.strides and offsets:
        strides = list(first.strides)
        strides[dim] = tuple(offsets)
        shape = list(first.shape)
        shape[dim] = len(offsets)
        made = View(first.buffer, tuple(shape), tuple(strides), 0)
        return made.take(dim, range(len(offsets)))
    return None
