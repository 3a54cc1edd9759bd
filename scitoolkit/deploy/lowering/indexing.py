"""Indexing: lookups at computed indices, sums at constant indices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.lazy import LazyModule
from scitoolkit.deploy.builder import Builder
from scitoolkit.deploy.kinds import Lowering
from scitoolkit.deploy.loops import Body, loop_text
from scitoolkit.deploy.lowering.reductions import reduced
from scitoolkit.deploy.lowering.views import reshaped
from scitoolkit.deploy.values import Expr, Value, View, numel

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule("torch")  # listing the lowerings needs none


class Lookup(Lowering):
    """index, gather, embedding, searchsorted; negative indices count from the end.

    An index out of range, which torch refuses, makes all outputs of the sample NaN.
    """

    targets: ClassVar[Sequence[str]] = (
        "aten.index.Tensor",
        "aten._unsafe_index.Tensor",
        "aten.gather.default",
        "aten.embedding.default",
        "aten.searchsorted.Tensor",
    )

    @classmethod
    def lower(cls, builder: Builder, target: str, args: Sequence[Any], like: Any) -> Value:
        """Return the indexed values."""
        x = builder.view(args[0])
        if target == "aten.searchsorted.Tensor":
            return _rank(builder, x, args, tuple(like.shape))
        if target == "aten.embedding.default":
            return _loaded(
                builder,
                x,
                [(args[1], 1), _ramp(len(like.shape) - 1, like.shape)],
                tuple(like.shape),
            )
        if target == "aten.gather.default":
            dim = args[1] % len(x.shape)
            own = [_ramp(d, like.shape) for d in range(len(x.shape))]
            indices = [args[2] if d == dim else own[d] for d in range(len(x.shape))]
            return _loaded(builder, x, indices, tuple(like.shape))
        index_of_dims = [*args[1], *[None] * (len(x.shape) - len(args[1]))]
        used = [d for d, index in enumerate(index_of_dims) if index is not None]
        if (
            len(used) == 1
            and isinstance(index_of_dims[used[0]], torch.Tensor)
            and index_of_dims[used[0]].ndim == 1
        ):
            return x.take(used[0], [i % x.shape[used[0]] for i in index_of_dims[used[0]].tolist()])
        if used != list(range(used[0], used[-1] + 1)):
            raise ConfigError("an index with slices between index tensors", where="export to C")
        block = torch.broadcast_shapes(*(tuple(index_of_dims[d].shape) for d in used))
        first = used[0]
        indices = []
        for d, index in enumerate(index_of_dims):
            if index is None:
                place = d if d < first else d - len(used) + len(block)
                indices.append(_ramp(place, like.shape))
            else:
                after = len(like.shape) - first - len(block)
                indices.append((index, after))
        return _loaded(builder, x, indices, tuple(like.shape), from_end=True)


def _rank(builder: Builder, x: View, args: Sequence[Any], shape: tuple[int, ...]) -> Value:
    """Return searchsorted: the number of entries before each value, by comparing all of them."""
    right = args[3] or args[4] == "right"
    if args[5] is not None:
        raise ConfigError("searchsorted with sorter", where="export to C", fix="sort the limits")
    count = x.shape[-1]
    values = reshaped(builder, builder.value(args[1]), (*shape, 1))
    rows = reshaped(builder, x, (*x.shape[:-1], *[1] * (len(shape) + 1 - len(x.shape)), count))
    text = f"!({{1}} {'>' if right else '>='} {{0}})"  # all limits are below NaN, as in torch
    below = Expr(text, (values, rows), (*shape, count), "int64")
    return reduced(builder, below, [len(shape)], "sum", shape)


def _ramp(dim: int, shape: Sequence[int]) -> torch.Tensor:
    view = [1] * len(shape)
    view[dim] = shape[dim]
    return torch.arange(shape[dim]).view(view)


def _loaded(
    builder: Builder,
    x: View,
    indices: Sequence[Any],
    shape: tuple[int, ...],
    *,
    from_end: bool = False,
) -> Expr:
    """Return an expression that loads x at one index per dim, each broadcast to `shape`.

    Negative indices count from the end if `from_end`, and are out of range otherwise.
    """
    values: list[Value] = []
    places = [str(x.offset)]
    for dim, index in enumerate(indices):
        after = 0
        if isinstance(index, tuple):
            index, after = index
        stride = x.strides[dim]
        value, text = _within(builder, index, len(values), x.shape[dim], from_end=from_end)
        if after:
            value = reshaped(builder, value, (*value.shape, *[1] * after))
        tabled = f"{builder.table(stride)}[{text}]" if isinstance(stride, tuple) else ""
        places.append(tabled or f"{text} * {stride}")
        values.append(value)
    text = "{source}[" + " + ".join(places) + "]"
    return Expr(text, tuple(values), shape, x.dtype, x)


def _within(
    builder: Builder, index: Any, place: int, size: int, *, from_end: bool
) -> tuple[Value, str]:
    """Return indices of a dim, and the text of a place in range by that of the indices.

    Indices that the inputs decide are checked where torch checks them, before their use: a choice
    or a comparison after a lookup would hide any number that stands for an error.

    Args:
        builder: the program.
        index: constant or computed indices.
        place: of the indices among the arguments of the text.
        size: of the dim.
        from_end: whether negative indices count from the end.

    Raises:
        ConfigError: a constant out of range.
    """
    least = -size if from_end else 0
    if isinstance(index, torch.Tensor):
        if not bool(((index >= least) & (index < size)).all()):
            raise ConfigError(f"an index out of range of {size}", where="export to C")
        return builder.constant(torch.where(index < 0, index + size, index)), f"{{{place}}}"
    value = builder.refuse(index, f"{{0}} < {least} || {{0}} >= {size}")
    return value, f"stk_within({{{place}}}, {size})"


class SumAt(Lowering):
    """Sums and assignments at computed and constant indices, in order."""

    targets: ClassVar[Sequence[str]] = (
        "aten.index_add.default",
        "aten.index_put.default",
        "aten.scatter.src",
        "aten.scatter.value",
        "aten.scatter_add.default",
        "aten.scatter_reduce.two",
    )

    @classmethod
    def lower(cls, builder: Builder, target: str, args: Sequence[Any], like: Any) -> Value:
        """Return the array after the sums or assignments."""
        shape = tuple(like.shape)
        if target == "aten.index_put.default":
            return _put(builder, args, shape)
        if target == "aten.index_add.default":
            base, dim, index, source, alpha = args
            dim %= len(shape)
            if alpha == 1 and isinstance(index, torch.Tensor):
                return _added(builder, base, dim, index, source)
            own = builder.value(source)
            source = Expr(f"{alpha} * {{0}}", (own,), own.shape, own.dtype)
            line = tuple(n if d == dim else 1 for d, n in enumerate(own.shape))
            index = reshaped(builder, builder.value(index), line)
            return _scattered(builder, base, {dim: index}, source, "{0} + {1}", own.shape)
        base, dim, index, source = args[:4]
        way = {"scatter_add": "sum", "scatter": None}.get(target.split(".")[1], "two")
        if way == "two":
            way = args[4]
            if not args[5]:
                raise ConfigError("scatter_reduce without include_self", where="export to C")
        if way not in _WAYS:
            raise ConfigError(
                f"scatter_reduce by {way}", where="export to C", allowed="sum, prod, amax, amin"
            )
        where = tuple(index.shape)
        if isinstance(source, int | float):
            source = torch.full((1,) * len(shape), source, dtype=like.dtype)
        else:
            source = _first(builder.view(source), where)
        return _scattered(builder, base, {dim % len(shape): index}, source, _WAYS[way], where)


_WAYS = {
    None: "{1}",
    "sum": "{0} + {1}",
    "prod": "{0} * {1}",
    "amax": "stk_larger({0}, {1})",
    "amin": "stk_smaller({0}, {1})",
}
"""New value of an element by its old one and the scattered one."""


def _first(view: View, shape: Sequence[int]) -> View:
    for dim, size in enumerate(shape):
        view = view.take(dim, range(size))
    return view


def _added(builder: Builder, base: Any, dim: int, index: torch.Tensor, source: Any) -> View:
    """Return sums at constant indices of a dim."""
    start = builder.value(base)
    into = builder.store(start, builder.new(start.shape, start.dtype))
    added = builder.view(source)
    rows = into.take(dim, [i % start.shape[dim] for i in index.tolist()])
    body = Body(rows)
    line = f"{{into}} = {{into}} + {body.load(added)};"
    builder.emit(
        loop_text(rows, body.lines, line, body.leaves, builder.table, serial=True), into, added
    )
    return into


def _put(builder: Builder, args: Sequence[Any], shape: tuple[int, ...]) -> View:
    """Return index_put: assignments, or sums, at indices of neighbouring dims."""
    base, indices, source = args[:3]
    adds = len(args) > 3 and bool(args[3])
    if any(_is_mask(index) for index in indices):
        return _put_where(builder, base, indices, source, shape, adds=adds)
    used = [d for d, index in enumerate(indices) if index is not None]
    first, constant = used[0], isinstance(indices[used[0]], torch.Tensor)
    if used == [0] and adds and constant and indices[0].ndim == 1:
        return _added(builder, base, 0, indices[0], source)
    if used != list(range(first, used[-1] + 1)):
        raise ConfigError("an index with slices between index tensors", where="export to C")
    block = torch.broadcast_shapes(*(tuple(indices[d].shape) for d in used))
    after = shape[used[-1] + 1 :]
    where = (*shape[:first], *block, *after)
    own = {}
    for d in used:
        value, wide = indices[d], (*indices[d].shape, *[1] * len(after))
        own[d] = (
            value.reshape(wide)
            if isinstance(value, torch.Tensor)
            else reshaped(builder, value, wide)
        )
    ramps = {d: d for d in range(first)} | {
        used[-1] + 1 + k: first + len(block) + k for k in range(len(after))
    }
    way = _WAYS["sum" if adds else None]
    return _scattered(builder, base, own, source, way, where, ramps, from_end=True)


def _is_mask(index: Any) -> bool:
    return index is not None and str(index.dtype).removeprefix("torch.") == "bool"


def _put_where(
    builder: Builder,
    base: Any,
    indices: Sequence[Any],
    source: Any,
    shape: tuple[int, ...],
    *,
    adds: bool,
) -> View:
    """Return index_put at the true elements of one mask, of values that do not depend on them.

    Raises:
        ConfigError: several indices, or a value for each true element.
    """
    own, start = builder.value(base), len(indices) - 1
    mask, value = builder.value(indices[-1]), builder.value(source)
    after = shape[start + len(mask.shape) :]
    if any(index is not None for index in indices[:-1]) or len(value.shape) > len(after):
        raise ConfigError(
            "an assignment of several values at a mask",
            where="export to C",
            fix="torch.where(mask, values, x)",
        )
    mask = reshaped(builder, mask, (*mask.shape, *[1] * len(after)))
    new = "{1} + {2}" if adds else "{2}"
    return builder.store(Expr(f"{{0}} ? {new} : {{1}}", (mask, own, value), shape, own.dtype))


def _scattered(
    builder: Builder,
    base: Any,
    indices: Mapping[int, Any],
    source: Any,
    way: str,
    where: tuple[int, ...],
    ramps: Mapping[int, int] | None = None,
    *,
    from_end: bool = False,
) -> View:
    """Return an array with elements replaced one after the other.

    Args:
        builder: the program.
        base: the array.
        indices: {dim: indices that broadcast to `where`}.
        source: values that broadcast to `where`.
        way: text of the new value by the old and the scattered one.
        where: shape of the indices and the values.
        ramps: {other dim: dim of `where` that runs along it}; the same dim unless given.
        from_end: whether negative indices count from the end.
    """
    start = builder.value(base)
    into = builder.store(start, builder.new(start.shape, start.dtype))
    values: list[Value] = []
    places = []
    for dim in range(len(start.shape)):
        index = indices.get(dim)
        if index is None:
            index = _ramp(dim if ramps is None else ramps[dim], where)
        value, text = _within(builder, index, dim, start.shape[dim], from_end=from_end)
        values.append(value)
        places.append(f"{text} * {into.strides[dim]}")
    flat = Expr(" + ".join(places) or "0", tuple(values), where, "int64")
    place = builder.store(flat, builder.new(where, "int64"))
    own = builder.value(source)
    if isinstance(own, Expr):
        own = builder.store(own)
    entries = builder.store(own.expand(where), builder.new(where, start.dtype))
    at = f"{into.buffer.name}[{place.buffer.name}[i]]"
    text = way.format(at, f"{entries.buffer.name}[i]")
    builder.emit(
        f"for (int64_t i = 0; i < {numel(where)}; i++)\n  {at} = {text};", into, place, entries
    )
    return into
