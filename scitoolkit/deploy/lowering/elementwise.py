"""Elementwise operators as C expressions, fused into the loop that stores them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from scitoolkit.core.lazy import LazyModule
from scitoolkit.deploy.builder import Builder
from scitoolkit.deploy.kinds import Lowering
from scitoolkit.deploy.values import C_TYPES, Expr, Value, View

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule("torch")  # listing the lowerings needs none

_UNARY = {
    "neg": "-{0}",
    "abs": "fabs({0})",
    "exp": "stk_exp({0})",
    "log": "log({0})",
    "sqrt": "sqrt({0})",
    "rsqrt": "1 / sqrt({0})",
    "reciprocal": "1 / {0}",
    "sin": "sin({0})",
    "cos": "cos({0})",
    "tanh": "stk_tanh({0})",
    "sigmoid": "stk_sigmoid({0})",
    "relu": "{0} < 0 ? 0 : {0}",
    "silu": "{0} * stk_sigmoid({0})",
    "floor": "floor({0})",
    "round": "rint({0})",
    "erf": "stk_erf({0})",
    "log1p": "log1p({0})",
    "expm1": "expm1({0})",
    "logical_not": "!{0}",
    "sign": "({0} > 0) - ({0} < 0)",
    **{
        name: f"{name}({{0}})"
        for name in (
            "tan asin acos atan sinh cosh asinh acosh atanh ceil trunc exp2 log2 log10 erfc lgamma"
        ).split()
    },
    "erfinv": "stk_erfinv({0})",
    "digamma": "stk_digamma({0})",
    "special_erfcx": "stk_erfcx({0})",
    **{n: f"stk_bessel({{0}}, {n[-1]})" for n in ("i0", "special_i1")},
    **{n: f"stk_bessel_scaled({{0}}, {n[-2]})" for n in ("special_i0e", "special_i1e")},
    "isnan": "{0} != {0}",
    "isinf": "fabs({0}) == INFINITY",
    "signbit": "copysign(1.0, {0}) < 0",
}
_BINARY = {
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "maximum": "stk_larger({0}, {1})",
    "minimum": "stk_smaller({0}, {1})",
    "pow": "pow({0}, {1})",
    "lt": "{0} < {1}",
    "le": "{0} <= {1}",
    "gt": "{0} > {1}",
    "ge": "{0} >= {1}",
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "logical_and": "{0} && {1}",
    "logical_or": "{0} || {1}",
    "bitwise_and": "{0} & {1}",
    "bitwise_or": "{0} | {1}",
    "bitwise_xor": "{0} ^ {1}",
    "__lshift__": "{0} << {1}",
    "__rshift__": "{0} >> {1}",
    "logical_xor": "!{0} != !{1}",
    "remainder": "stk_remainder({0}, {1})",
    **{
        name: f"{name}({{0}}, {{1}})"
        for name in ("atan2", "hypot", "fmod", "fmax", "fmin", "copysign")
    },
}
_WHOLE = {
    "abs": "stk_absolute_whole({0})",
    "pow": "stk_power_whole({0}, {1})",
    "remainder": "stk_remainder_whole({0}, {1})",
    "fmod": "stk_fmod_whole({0}, {1})",
    "div": "stk_divided_whole({0}, {1})",
    "floor divided": "stk_floor_divided_whole({0}, {1})",
    **dict.fromkeys(("floor", "ceil", "round", "trunc"), "{0}"),
}
"""Texts of operators of integers whose functions of C compute in double."""
_DIVISIONS = ("div", "remainder", "fmod")
_POWERS = {
    2: "{0} * {0}",
    3: "{0} * {0} * {0}",
    0.5: "sqrt({0})",
    -1: "1 / {0}",
    -0.5: "1 / sqrt({0})",
}


def dtype_of(like: Any) -> str:
    """Return the name of the dtype of a tensor."""
    return str(like.dtype).removeprefix("torch.")


def operand(builder: Builder, value: Any, args: list[Value], dtype: str) -> str:
    """Return the text of an operand: a literal, or a placeholder of an argument."""
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        value = value.item()
    if isinstance(value, bool | int | float):
        return literal(value, dtype)
    args.append(builder.value(value))
    return f"{{{len(args) - 1}}}"


def literal(value: float, dtype: str) -> str:
    """Return a number as a C literal of a dtype.

    Example:
        >>> literal(0.5, "float32"), literal(2, "int64")
        ('0.5f', '2')
    """
    if not math.isfinite(value):
        return "NAN" if value != value else ("INFINITY" if value > 0 else "-INFINITY")
    if not dtype.startswith("float"):
        return str(int(value)) if value == int(value) else repr(float(value))
    return f"{float(value)!r}" + ("f" if dtype == "float32" else "")


class Elementwise(Lowering):
    """Arithmetic, activations, comparisons, choices and conversions."""

    targets: ClassVar[Sequence[str]] = (
        *(f"aten.{name}.default" for name in _UNARY),
        *(f"aten.{name}.Tensor" for name in _BINARY),
        *(f"aten.{name}.Scalar" for name in _BINARY),
        *("aten.pow.Tensor_Tensor", "aten.pow.Tensor_Scalar", "aten.add.Tensor", "aten.add.Scalar"),
        *("aten.sub.Tensor", "aten.sub.Scalar", "aten.rsub.Scalar", "aten.remainder.Scalar_Tensor"),
        *("aten.gelu.default", "aten.clamp.default", "aten.clamp.Tensor", "aten.div.Tensor_mode"),
        *("aten.div.Scalar_mode", "aten.bitwise_not.default"),
        *(f"aten.{name}.default" for name in _BINARY if not name.startswith("bitwise")),
        *("aten.where.self", "aten._to_copy.default", "aten.leaky_relu.default"),
        *("aten.elu.default", "aten.softplus.default", "aten.hardtanh.default"),
    )

    @classmethod
    def lower(cls, builder: Builder, target: str, args: Sequence[Any], like: Any) -> Value:
        """Return the expression."""
        name, dtype = target.split(".")[1], dtype_of(like)
        if target == "aten.clamp.Tensor":
            return _clamped(builder, args, dtype, tuple(like.shape))
        values: list[Value] = []
        computing = _computing(args, dtype)
        if dtype.startswith("int") and name in _DIVISIONS and not isinstance(args[1], int):
            args = [args[0], builder.refuse(args[1], "{0} == 0"), *args[2:]]
        operands = [operand(builder, a, values, computing) for a in args[: _arity(name, args)]]
        operands = [_real(g, a, computing) for g, a in zip(operands, args, strict=False)]
        text = _text(name, args, operands, computing, bool_result=dtype == "bool")
        if name == "add" and dtype == "bool":  # or
            text = f"({text}) != 0"
        if dtype not in C_TYPES:
            raise_dtype(target, dtype)
        return Expr(text, tuple(values), tuple(like.shape), dtype)


def _clamped(builder: Builder, args: Sequence[Any], dtype: str, shape: tuple[int, ...]) -> Value:
    """Return x between two arrays, of which one may be None."""
    x = builder.value(args[0])
    for limit, name in zip(args[1:3], ("stk_larger", "stk_smaller"), strict=True):
        if limit is not None:
            x = Expr(f"{name}({{0}}, {{1}})", (x, builder.value(limit)), shape, dtype)
    return x


def raise_dtype(target: str, dtype: str) -> None:
    """Raise ConfigError for an unsupported dtype."""
    from scitoolkit.core.errors import ConfigError

    raise ConfigError(
        f"{target} of dtype {dtype}", where="export to C", allowed=", ".join(sorted(C_TYPES))
    )


def _real(text: str, value: Any, dtype: str) -> str:
    """Return an operand cast to a floating-point dtype if it is an array of integers.

    Integers divide to real numbers in torch, not in C.
    """
    whole = isinstance(value, View | Expr | torch.Tensor) and _own_dtype(value).startswith("int")
    return f"({C_TYPES[dtype]}){text}" if whole and dtype.startswith("float") else text


def _own_dtype(array: Any) -> str:
    return str(array.dtype if isinstance(array, View | Expr) else dtype_of(array))


def _computing(args: Sequence[Any], dtype: str) -> str:
    """Return the dtype of literals: that of the result, or of the operands of a comparison."""
    if dtype != "bool":
        return dtype
    dtypes = [
        a.dtype if isinstance(a, View | Expr) else dtype_of(a)
        for a in args
        if isinstance(a, View | Expr | torch.Tensor)
    ]
    return next((d for d in dtypes if d.startswith("float")), dtype)


def _arity(name: str, args: Sequence[Any]) -> int:
    if name in _UNARY or name in (
        *("bitwise_not", "gelu", "clamp", "_to_copy", "leaky_relu", "elu", "softplus", "hardtanh"),
    ):
        return 1
    return 3 if name == "where" else 2


def _text(
    name: str, args: Sequence[Any], operands: list[str], dtype: str, *, bool_result: bool
) -> str:
    """Return the C expression of an operator.

    Args:
        name: of the operator.
        args: by its schema.
        operands: text of the operands.
        dtype: of literals.
        bool_result: whether it returns truth values, which are stored as integers.
    """
    if name in ("add", "sub", "rsub"):
        alpha = args[2] if len(args) > 2 and args[2] is not None else 1
        if name == "rsub":
            operands = operands[::-1]
        second = operands[1] if alpha == 1 else f"{literal(alpha, dtype)} * {operands[1]}"
        return f"{operands[0]} {'+' if name == 'add' else '-'} {second}"
    if dtype.startswith("int") and name in _WHOLE:
        floors = name == "div" and args[2] == "floor"
        return _WHOLE["floor divided" if floors else name].format(*operands)
    if name == "div" and len(args) > 2 and args[2] is not None:
        if args[2] == "floor":
            return f"stk_floor_divided({operands[0]}, {operands[1]})"
        # Truncated after the division of the dtype, as 1 / .1f is 10 in float and less in double.
        return f"trunc({operands[0]} / {operands[1]})"
    if name == "bitwise_not":
        return f"!{operands[0]}" if bool_result else f"~{operands[0]}"
    if name == "pow" and isinstance(args[1], int | float) and args[1] in _POWERS:
        return _POWERS[args[1]].format(operands[0])
    if name == "gelu":
        return f"stk_gelu{'_tanh' if args[1] == 'tanh' else ''}({operands[0]})"
    if name in ("clamp", "hardtanh"):
        text = operands[0]
        low, high = (*args[1:3], None, None)[:2]
        if low is not None:
            text = f"stk_max({text}, {literal(low, dtype)})"
        return text if high is None else f"stk_min({text}, {literal(high, dtype)})"
    if name == "where":
        return f"{operands[0]} ? {operands[1]} : {operands[2]}"
    if name == "_to_copy" and bool_result:
        return f"{operands[0]} != 0"
    if name == "_to_copy" and dtype.startswith("int") and _own_dtype(args[0]).startswith("float"):
        # Not (int)x: with -fno-trapping-math gcc makes -0. of (float)(int)-.5, and 1 / it is -inf.
        return f"({C_TYPES[dtype]}){operands[0]} | ({operands[0]} != {operands[0]})"
    if name == "_to_copy":
        return f"({C_TYPES[dtype]}){operands[0]}"
    if name == "signbit" and not _own_dtype(args[0]).startswith("float"):
        return f"{operands[0]} < 0"
    x = operands[0]
    if name == "leaky_relu":
        return f"{x} > 0 ? {x} : {literal(args[1], dtype)} * {x}"
    if name == "elu":  # also SELU and CELU
        alpha, scale, inner = (literal(a, dtype) for a in args[1:4])
        return f"{x} > 0 ? {scale} * {x} : {scale} * {alpha} * expm1({x} * {inner})"
    if name == "softplus":
        beta, threshold = (literal(a, dtype) for a in args[1:3])
        return f"{x} * {beta} > {threshold} ? {x} : log1p(exp({x} * {beta})) / {beta}"
    return {**_UNARY, **_BINARY}[name].format(*operands)
