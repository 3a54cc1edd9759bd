"""Upsampling, nearest and linear, as lookups at constant indices along each dim."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from scitoolkit.deploy.builder import Builder
from scitoolkit.deploy.kinds import Lowering
from scitoolkit.deploy.values import Expr, Value


class Resampling(Lowering):
    """upsample_nearest, upsample_linear, upsample_bilinear and upsample_trilinear."""

    targets: ClassVar[Sequence[str]] = tuple(
        f"aten.upsample_{kind}.{form}"
        for kind in ("nearest1d", "nearest2d", "nearest3d", "linear1d", "bilinear2d", "trilinear3d")
        for form in ("vec", "default")
    )

    @classmethod
    def lower(cls, builder: Builder, target: str, args: Sequence[Any], like: Any) -> Value:
        """Return the resampled value; each dim is stored before the next."""
        value = builder.value(args[0])
        linear = "nearest" not in target
        align = bool(args[2]) if linear else False
        scale_arguments = args[3 if linear else 2 :]
        factors = scale_arguments[0] if target.endswith(".vec") else scale_arguments
        for dim in range(2, len(like.shape)):
            factor = factors[dim - 2] if factors else None
            value = _along(
                builder, value, dim, like.shape[dim], linear=linear, align=align, factor=factor
            )
        return value


def _along(
    builder: Builder,
    value: Value,
    dim: int,
    size: int,
    *,
    linear: bool,
    align: bool,
    factor: float | None,
) -> Value:
    """Return a value interpolated along one dim.

    Args:
        builder: the program.
        value: the value to interpolate.
        dim: the dim to interpolate along.
        size: of the result.
        linear: else the nearest.
        align: the ends of both grids coincide.
        factor: scale factor that the module was given, which torch uses instead of the sizes.
    """
    old = value.shape[dim]
    step = old / size if factor is None else 1 / factor
    if size == old and step == 1:
        return value
    view = builder.view(value)
    if not linear:
        # In float32, as torch does: the place decides which neighbour is taken.
        places = np.floor(np.arange(size, dtype=np.float32) * np.float32(step)).astype(int)
        return view.take(dim, np.minimum(places, old - 1).tolist())
    if align:
        position = np.arange(size) * ((old - 1) / max(size - 1, 1))
    else:
        position = np.maximum((np.arange(size) + 0.5) * step - 0.5, 0.0)
    left = np.minimum(position.astype(int), old - 1)
    share = (position - left).astype(view.dtype)
    right = np.minimum(left + 1, old - 1)
    shape = [1] * len(view.shape)
    shape[dim] = size
    weight = builder.constant(share.reshape(shape))
    first, second = view.take(dim, left.tolist()), view.take(dim, right.tolist())
    return Expr("{0} + {2} * ({1} - {0})", (first, second, weight), first.shape, view.dtype)
