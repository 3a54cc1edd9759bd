"""Layer and group norms, with means and variances in two passes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from scitoolkit.deploy.builder import Builder
from scitoolkit.deploy.kinds import Lowering
from scitoolkit.deploy.lowering.elementwise import literal
from scitoolkit.deploy.lowering.reductions import reduced
from scitoolkit.deploy.lowering.views import reshaped
from scitoolkit.deploy.values import Expr, Value, View, numel


class Normalisation(Lowering):
    """native_layer_norm and native_group_norm."""

    targets: ClassVar[Sequence[str]] = (
        "aten.native_layer_norm.default",
        "aten.native_group_norm.default",
    )

    @classmethod
    def lower(cls, builder: Builder, target: str, args: Sequence[Any], like: Any) -> Any:
        """Return the normalised value; the outputs mean and variance are None."""
        x = builder.view(args[0])
        if "layer" in target:
            first = len(x.shape) - len(args[1])
            dims = list(range(first, len(x.shape)))
            reduced_shape = (*x.shape[:first], *[1] * len(dims))

            def total(value: Value) -> View:
                return reduced(builder, value, dims, "sum", reduced_shape)

            scale, shift, eps = args[2:5]
            shape: tuple[int, ...] = x.shape[first:]
        else:
            groups, eps = args[6], args[7]
            dims, total = _by_group(builder, x, groups)
            scale, shift = args[1:3]
            shape = (x.shape[1], *[1] * (len(x.shape) - 2))
        count = literal(float(numel(x.shape) // _results(x, dims, args, target)), x.dtype)
        mean = builder.store(_each("{0} / " + count, total(x)))
        centred = Expr("{0} - {1}", (x, mean), x.shape, x.dtype)
        square = Expr("{0} * {0}", (centred,), x.shape, x.dtype)
        text = f"1 / sqrt({{0}} / {count} + {literal(eps, x.dtype)})"
        factor = builder.store(_each(text, total(square)))
        out = Expr("{0} * {1}", (centred, factor), x.shape, x.dtype)
        if scale is not None:
            line = reshaped(builder, builder.value(scale), shape)
            out = Expr("{0} * {1}", (out, line), x.shape, x.dtype)
        if shift is not None:
            line = reshaped(builder, builder.value(shift), shape)
            out = Expr("{0} + {1}", (out, line), x.shape, x.dtype)
        return (builder.store(out), None, None)


def _results(x: View, dims: Sequence[int], args: Sequence[Any], target: str) -> int:
    if "layer" in target:
        return numel(x.shape[: dims[0]])
    return x.shape[0] * int(args[6])


def _each(text: str, value: View) -> Expr:
    return Expr(text, (value,), value.shape, value.dtype)


def _by_group(builder: Builder, x: View, groups: int) -> tuple[list[int], Any]:
    """Return the space dims, and a function that sums over space and the channels of a group.

    The sums are repeated for each channel without a copy.
    """
    batch, channels = x.shape[:2]
    space = list(range(2, len(x.shape)))
    group_channels = channels // groups

    def total(value: Value) -> View:
        sums = reduced(builder, value, space, "sum", (batch, channels))
        by_group = reshaped(builder, sums, (batch, groups, group_channels))
        of_groups = reduced(builder, by_group, [2], "sum", (batch, groups, *[1] * len(space)))
        return of_groups.take(1, [c // group_channels for c in range(channels)])

    return space, total
