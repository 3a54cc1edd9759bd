"""Indexing: lookups at computed indices, sums at constant indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.lazy import LazyModule
from scitoolkit.deploy.builder import Builder
from scitoolkit.deploy.kinds import Lowering
from scitoolkit.deploy.loops import Body, loop_text
from scitoolkit.deploy.lowering.reductions import reduced
from scitoolkit.deploy.lowering.views import reshaped
from scitoolkit.deploy.values import Expr, Value, View

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule("torch")  # listing the lowerings needs none


class Lookup(Lowering):
    """index, gather, embedding, searchsorted; negative indices count from the end.

    Indices out of range are clamped.
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
        return _loaded(builder, x, indices, tuple(like.shape))


def _rank(builder: Builder, x: View, args: Sequence[Any], shape: tuple[int, ...]) -> Value:
    """Return searchsorted: the number of entries before each value, by comparing all of them."""
    side = ">=" if args[3] or args[4] == "right" else ">"
    count = x.shape[-1]
    values = reshaped(builder, builder.value(args[1]), (*shape, 1))
    rows = reshaped(builder, x, (*x.shape[:-1], *[1] * (len(shape) + 1 - len(x.shape)), count))
    below = Expr(f"{{0}} {side} {{1}}", (values, rows), (*shape, count), "int64")
    return reduced(builder, below, [len(shape)], "sum", shape)


def _ramp(dim: int, shape: Sequence[int]) -> torch.Tensor:
    view = [1] * len(shape)
    view[dim] = shape[dim]
    return torch.arange(shape[dim]).view(view)


def _loaded(builder: Builder, x: View, indices: Sequence[Any], shape: tuple[int, ...]) -> Expr:
    """Return an expression that loads x at one index per dim, each broadcast to `shape`."""
    values: list[Value] = []
    places = [str(x.offset)]
    for dim, index in enumerate(indices):
        after = 0
        if isinstance(index, tuple):
            index, after = index
        stride, size = x.strides[dim], x.shape[dim]
        constant = isinstance(index, torch.Tensor)
        if constant:
            index = torch.where(index < 0, index + size, index)
        value = builder.value(index)
        if after:
            value = reshaped(builder, value, (*value.shape, *[1] * after))
        safe = f"stk_within({{{len(values)}}}, {size})"
        if constant and bool(((index >= 0) & (index < size)).all()):
            safe = f"{{{len(values)}}}"
        places.append(
            f"{builder.table(stride)}[{safe}]"
            if isinstance(stride, tuple)
            else f"{safe} * {stride}"
        )
        values.append(value)
    return Expr("{source}[" + " + ".join(places) + "]", tuple(values), shape, x.dtype, x)


class SumAt(Lowering):
    """index_add along the first dim at constant indices, in order."""

    targets: ClassVar[Sequence[str]] = ("aten.index_add.default", "aten.index_put.default")

    @classmethod
    def lower(cls, builder: Builder, target: str, args: Sequence[Any], like: Any) -> Value:
        """Return the sums."""
        if target == "aten.index_put.default":
            base, (index,), source = args[0], args[1][:1], args[2]
            if len(args[1]) != 1 or len(args) < 4 or not args[3]:
                raise ConfigError(
                    "index_put that does not add along the first dim", where="export to C"
                )
        else:
            base, dim, index, source = args[:4]
            if dim:
                raise ConfigError("index_add along another dim than the first", where="export to C")
        if not isinstance(index, torch.Tensor):
            raise ConfigError(f"{target} with computed indices", where="export to C")
        start = builder.value(base)
        into = builder.store(start, builder.new(start.shape, start.dtype))
        added = builder.view(source)
        target_rows = into.take(0, index.tolist())
        rows = View(into.buffer, target_rows.shape, target_rows.strides, target_rows.offset)
        body = Body(rows)
        line = f"{{into}} = {{into}} + {body.load(added)};"
        builder.emit(
            loop_text(rows, body.lines, line, body.leaves, builder.table, serial=True), into, added
        )
        return into
