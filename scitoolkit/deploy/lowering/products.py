"""Matrix products: constant matrices are packed at export, computed ones in the call."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.lazy import LazyModule
from scitoolkit.deploy import tiles
from scitoolkit.deploy.bits.codes import matrix_key
from scitoolkit.deploy.bits.product import few_bits
from scitoolkit.deploy.builder import Builder
from scitoolkit.deploy.kinds import Lowering
from scitoolkit.deploy.lowering.elementwise import dtype_of, literal
from scitoolkit.deploy.lowering.linear_algebra import LINEAR_ALGEBRA, linear_algebra
from scitoolkit.deploy.lowering.reductions import reduced
from scitoolkit.deploy.lowering.views import reshaped
from scitoolkit.deploy.values import Expr, View, numel

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule("torch")  # listing the lowerings needs none


class Products(Lowering):
    """mm, bmm and addmm as register tiles, and operators on small square matrices."""

    targets: ClassVar[Sequence[str]] = (
        "aten.mm.default",
        "aten.bmm.default",
        "aten.addmm.default",
        *LINEAR_ALGEBRA,
    )

    @classmethod
    def lower(cls, builder: Builder, target: str, args: Sequence[Any], like: Any) -> Any:
        """Return the product."""
        if target in LINEAR_ALGEBRA:
            return linear_algebra(builder, target, args, like)
        if not dtype_of(like).startswith("float"):
            raise ConfigError(f"{target} of integers", where="export to C", fix="x.float()")
        if target == "aten.addmm.default":
            bias, a, b, beta, alpha = args
            if beta != 1 or alpha != 1:
                product = _matrices(builder, a, b)
                first, second = (literal(n, product.dtype) for n in (alpha, beta))
                text = f"{first} * {{0}} + {second} * {{1}}"
                return Expr(text, (product, builder.value(bias)), tuple(like.shape), product.dtype)
            if isinstance(bias, torch.Tensor) and isinstance(b, torch.Tensor) and bias.ndim == 1:
                return _constant(builder, builder.view(a), b, bias.numpy())
            product = _matrices(builder, a, b)
            return Expr(
                "{0} + {1}", (product, builder.value(bias)), tuple(like.shape), product.dtype
            )
        return _matrices(builder, args[0], args[1])


def _matrices(builder: Builder, a: Any, b: Any) -> View:
    if isinstance(b, torch.Tensor):
        return _constant(builder, builder.view(a), b, None)
    if isinstance(a, torch.Tensor):
        order = [*range(a.ndim - 2), a.ndim - 1, a.ndim - 2]
        turned = _constant(builder, builder.view(b).permute(order), a.transpose(-1, -2), None)
        return turned.permute(order)
    return _dynamic(builder, builder.view(a), builder.view(b))


def _constant(builder: Builder, a: View, b: torch.Tensor, bias: np.ndarray | None) -> View:
    """Return a (..., M, K) times constant b (K, N) or (..., K, N)."""
    if b.ndim == 3 and (b.stride(0) == 0 or b.shape[0] == 1):
        b = b[0]
    if builder.coded and b.ndim == 2:
        key = matrix_key(b.T)
        if key in builder.coded:
            builder.used.add(key)
            return few_bits(builder, a, builder.coded[key], bias)
    a = plain(builder, a)
    rows = numel(a.shape[:-1]) if b.ndim == 2 else a.shape[-2]
    weights = tiles.constant_weights(builder, b.numpy(), bias, rows)
    return _product(builder, a, weights)


def _product(builder: Builder, a: View, weights: tiles.TiledWeights) -> View:
    step = a.strides[-1]
    assert isinstance(step, int)
    window = tiles.Window(a.shape[-1], step)
    return tiles.product(builder, a, range(len(a.shape) - 1), window, weights)


def plain(builder: Builder, a: View) -> View:
    """Return a view whose last dims have integer strides."""
    if all(isinstance(s, int) for s in a.strides[-2:]):
        return a
    return builder.store(a, builder.new(a.shape, a.dtype))


def _dynamic(builder: Builder, a: View, b: View) -> View:
    """Return the product of two computed matrices, without packing if it is small."""
    a = plain(builder, a)
    if a.shape[-2] == 1 or b.shape[-1] < 4:
        return _sum(builder, a, b)
    return _product(builder, a, tiles.computed_weights(builder, b, a.shape[-2]))


def _sum(builder: Builder, a: View, b: View) -> View:
    """Return the product as sums of elementwise products."""
    *count, rows, inputs = a.shape
    outputs = b.shape[-1]
    order = [*range(len(count)), len(count) + 1, len(count)]
    left = reshaped(builder, a, (*count, rows, 1, inputs))
    right = reshaped(builder, b.permute(order), (*count, 1, outputs, inputs))
    value = Expr("{0} * {1}", (left, right), (*count, rows, outputs, inputs), a.dtype)
    return reduced(builder, value, [len(count) + 2], "sum", (*count, rows, outputs))
