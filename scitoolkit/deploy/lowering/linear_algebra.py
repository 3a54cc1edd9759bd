"""Determinants, inverses, solutions and Cholesky factors of small matrices, in float64.

Symbols: A (n, n) is overwritten by its elimination, B (n, m) by the solution. torch raises for a
singular matrix; C returns numbers that are not finite, and so status 2.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.lazy import LazyModule
from scitoolkit.deploy.builder import Builder
from scitoolkit.deploy.lowering.elementwise import dtype_of
from scitoolkit.deploy.values import Expr, Value, View, numel

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule("torch")  # listing the lowerings needs none

LINEAR_ALGEBRA = (
    "aten._linalg_det.default",
    "aten._linalg_slogdet.default",
    "aten.linalg_inv_ex.default",
    "aten._linalg_solve_ex.default",
    "aten.linalg_solve_triangular.default",
    "aten.linalg_cholesky_ex.default",
)
"""Their targets."""


def linear_algebra(builder: Builder, target: str, args: Sequence[Any], like: Any) -> Any:
    """Return the results of an operator on square matrices; see `Lowering.lower`."""
    name = target.split(".")[1]
    result = like[0] if isinstance(like, tuple | list) else like
    shape, dtype = tuple(result.shape), dtype_of(result)
    a, size = builder.value(args[0]), builder.value(args[0]).shape[-1]
    if name == "linalg_cholesky_ex":
        factor = _doubles(builder, a, shape)
        _for_each_matrix(builder, "stk_cholesky({0}, {n})", size, [(factor, size * size)])
        order = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]
        return _rounded(factor.permute(order) if args[1] else factor, dtype), None
    if name in ("_linalg_det", "_linalg_slogdet"):
        sign, logarithm = _determinant(builder, a, size)
        if name == "_linalg_det":
            return Expr("{0} * exp({1})", (sign, logarithm), shape, dtype), None, None
        return _rounded(sign, dtype), _rounded(logarithm, dtype), None, None
    if name == "linalg_inv_ex":
        return _solution(builder, a, torch.eye(size).expand(shape), shape, dtype), None
    left = args[3] if name == "linalg_solve_triangular" else args[2]
    if not left:
        raise ConfigError(f"{name} with left=False", where="export to C", fix="transpose both")
    b = builder.value(args[1])
    if name == "linalg_solve_triangular":
        if args[4]:
            raise ConfigError(
                f"{name} with unitriangular", where="export to C", fix="add torch.eye"
            )
        part = torch.ones(size, size).triu() if args[2] else torch.ones(size, size).tril()
        a = Expr("{1} != 0 ? {0} : 0", (a, builder.constant(part)), a.shape, a.dtype)
        return _solution(builder, a, b, shape, dtype)
    if len(shape) < len(a.shape) or b.shape != shape:
        raise ConfigError(
            f"solve of {b.shape} by {a.shape}", where="export to C", fix="one column a vector"
        )
    return _solution(builder, a, b, shape, dtype), None, None, None


def _solution(builder: Builder, a: Value, b: Any, shape: tuple[int, ...], dtype: str) -> Value:
    size, columns = shape[-2:]
    left = _doubles(builder, a, (*shape[:-1], size))
    right = _doubles(builder, builder.value(b), shape)
    text = f"double s, l; stk_eliminate({{0}}, {{n}}, {{1}}, {columns}, &s, &l)"
    _for_each_matrix(builder, text, size, [(left, size * size), (right, size * columns)])
    return _rounded(right, dtype)


def _determinant(builder: Builder, a: Value, size: int) -> tuple[View, View]:
    """Return signs and logarithms of the absolute values of determinants."""
    matrices = _doubles(builder, a, a.shape)
    sign, logarithm = (builder.new(a.shape[:-2], "float64") for _ in range(2))
    _for_each_matrix(
        builder,
        "stk_eliminate({0}, {n}, {0}, 0, {1}, {2})",
        size,
        [(matrices, size * size), (sign, 1), (logarithm, 1)],
    )
    return sign, logarithm


def _doubles(builder: Builder, value: Value, shape: tuple[int, ...]) -> View:
    """Return a copy in float64 and C order, of a shape that the value broadcasts to."""
    wide = Expr("(double){0}", (value,), shape, "float64")
    return builder.store(wide, builder.new(shape, "float64"))


def _rounded(view: View, dtype: str) -> Value:
    return Expr(f"({'float' if dtype == 'float32' else 'double'}){{0}}", (view,), view.shape, dtype)


def _for_each_matrix(
    builder: Builder, text: str, size: int, arrays: Sequence[tuple[View, int]]
) -> None:
    """Emit a call for each matrix; arrays are (array, elements a matrix)."""
    count = numel(arrays[0][0].shape) // (size * size)
    names = [f"{view.buffer.name} + r * {step}" for view, step in arrays]
    line = text.format(*names, n=size)
    builder.emit(f"for (int64_t r = 0; r < {count}; r++) {{ {line}; }}", *(v for v, _ in arrays))
