"""Complex values as pairs of real ones, and Fourier transforms as products with their matrices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.lazy import LazyModule
from scitoolkit.deploy.values import Expr, Value, View

if TYPE_CHECKING:
    import torch
else:
    torch = LazyModule("torch")  # listing the lowerings needs none

Run = Callable[[str, Sequence[Any], Any], Any]
"""Lowering of an operator on real values: target, arguments and fake result."""
LINEAR = (
    "_unsafe_view add alias cat clone constant_pad_nd copy cumsum detach expand flip gather index "
    "index_select mean neg permute reshape roll select select_scatter slice slice_scatter split "
    "split_with_sizes squeeze stack sub sum transpose unsqueeze view where _conj_copy "
    "resolve_conj resolve_neg"
).split()
"""Operators that act on real and imaginary parts alike."""

OTHER = (
    "_conj _conj_physical _fft_c2c _fft_c2r _fft_r2c _to_copy abs angle bmm complex div exp imag "
    "log mm mul polar pow real reciprocal view_as_complex view_as_real"
).split()
"""Other operators of complex numbers."""

MOST_FACTORS = 8
"""Largest whole power that is written as products."""


@dataclass(frozen=True, eq=False)
class Complex:
    """A complex value as real and imaginary part, each a value or a constant tensor."""

    real: Any
    imag: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of both parts."""
        return tuple(self.real.shape)


def is_complex(target: str, args: Sequence[Any], like: Any) -> bool:
    """Return whether an operator has complex arguments or results."""
    results = like if isinstance(like, tuple | list) else [like]
    return _any(args) or any(getattr(r, "dtype", None) in _dtypes() for r in results)


def _dtypes() -> tuple[Any, ...]:
    return (torch.complex64, torch.complex128)


def _any(args: Sequence[Any]) -> bool:
    return any(
        isinstance(a, Complex | complex)
        or (isinstance(a, torch.Tensor) and a.is_complex())
        or (isinstance(a, list | tuple) and _any(a))
        for a in args
    )


def _parts(x: Any) -> Complex:
    """Return a real or complex value, constant or number as a pair."""
    if isinstance(x, Complex):
        return x
    if isinstance(x, torch.Tensor):
        whole = x.to(torch.complex64 if x.dtype != torch.complex128 else x.dtype)
        return Complex(whole.real.contiguous(), whole.imag.contiguous())
    if isinstance(x, View | Expr):
        return Complex(x, torch.zeros((1,) * len(x.shape)).expand(x.shape))
    return Complex(complex(x).real, complex(x).imag)


def lower_complex(run: Run, target: str, args: Sequence[Any], like: Any) -> Any:
    """Return the result of an operator with complex arguments or results.

    Args:
        run: lowers an operator on real values.
        target: the operator.
        args: all arguments of its schema; complex values are `Complex`.
        like: fake tensor of the result.

    Raises:
        ConfigError: an operator without a form for complex numbers.
    """
    name = target.split(".")[1]
    real = _real_like(like)
    if name.startswith("_fft"):
        return _transform(run, name, args)
    if name == "view_as_complex":
        last = len(real.shape)
        return Complex(*(run("aten.select.int", [args[0], last, k], real) for k in (0, 1)))
    if name == "view_as_real":
        x = _parts(args[0])
        return run("aten.stack.default", [[x.real, x.imag], -1], like)
    if name in ("real", "imag"):
        return getattr(_parts(args[0]), name)
    if name == "_to_copy":
        x = _parts(args[0])
        return x if like.dtype in _dtypes() else x.real
    if name in ("_conj", "_conj_physical", "conj_physical", "conj"):
        x = _parts(args[0])
        return Complex(x.real, run("aten.neg.default", [x.imag], real))
    if name in LINEAR:
        return _by_part(run, name, target, args, like)
    if name in ("abs", "angle", "exp", "log", "polar", "complex"):
        return _of_polar(run, name, args, real)
    if name in ("mul", "div"):
        return _product(run, name, args, real)
    if name == "reciprocal":
        return _product(run, "div", [1.0 + 0j, args[0]], real)
    if target == "aten.pow.Tensor_Scalar" and args[1] in range(-MOST_FACTORS, MOST_FACTORS + 1):
        return _power(run, args[0], int(args[1]), real)
    if name in ("mm", "bmm"):
        a, b = _parts(args[0]), _parts(args[1])

        def product(x: Any, y: Any) -> Any:
            return run(target, [x, y], real)

        return Complex(
            _less(run, product(a.real, b.real), product(a.imag, b.imag), real),
            _plus(run, product(a.real, b.imag), product(a.imag, b.real), real),
        )
    raise ConfigError(
        f"operator {target} of complex numbers",
        where="export to C",
        fix="write it with the real and imaginary parts",
    )


def _real_like(like: Any) -> Any:
    if isinstance(like, tuple | list):
        return [_real_like(part) for part in like]
    double = like.dtype in (torch.complex128, torch.float64)
    return SimpleNamespace(shape=like.shape, dtype=torch.float64 if double else torch.float32)


def _plus(run: Run, a: Any, b: Any, like: Any) -> Any:
    return run("aten.add.Tensor", [a, b, 1], like)


def _less(run: Run, a: Any, b: Any, like: Any) -> Any:
    return run("aten.sub.Tensor", [a, b, 1], like)


def _by_part(run: Run, name: str, target: str, args: Sequence[Any], like: Any) -> Any:
    def part(x: Any, which: str) -> Any:
        if isinstance(x, list) and name in ("cat", "stack"):
            return [part(a, which) for a in x]
        if isinstance(x, Complex | torch.Tensor | View | Expr):
            whole = isinstance(x, torch.Tensor) and x.dtype in (torch.bool, torch.int64)
            return x if whole or _indexes(x) else getattr(_parts(x), which)
        if name in ("add", "sub", "constant_pad_nd") and isinstance(x, complex):
            return getattr(x, which)
        return x

    real, made = _real_like(like), []
    for which in ("real", "imag"):
        own = [part(a, which) for a in args]
        if which == "imag" and name == "constant_pad_nd" and not isinstance(args[2], complex):
            own[2] = 0
        if which == "imag" and name in ("add", "sub") and isinstance(args[1], int | float):
            made.append(own[0])
            continue
        made.append(run(target, own, real))
    if isinstance(like, tuple | list):
        return [Complex(a, b) for a, b in zip(*made, strict=True)]
    return Complex(*made)


def _indexes(x: Any) -> bool:
    return isinstance(x, View | Expr) and not x.dtype.startswith("float")


def _of_polar(run: Run, name: str, args: Sequence[Any], like: Any) -> Any:
    if name in ("polar", "complex"):
        first, second = args[:2]
    else:
        x = _parts(args[0])
        first, second = x.real, x.imag
    if name == "abs":
        return run("aten.hypot.default", [first, second], like)
    if name == "angle":
        return run("aten.atan2.default", [second, first], like)
    if name == "complex":
        return Complex(first, second)
    if name == "log":
        size = run("aten.hypot.default", [first, second], like)
        angle = run("aten.atan2.default", [second, first], like)
        return Complex(run("aten.log.default", [size], like), angle)
    size = first if name == "polar" else run("aten.exp.default", [first], like)
    waves = (run(f"aten.{wave}.default", [second], like) for wave in ("cos", "sin"))
    return Complex(*(run("aten.mul.Tensor", [size, wave], like) for wave in waves))


def _product(run: Run, name: str, args: Sequence[Any], like: Any) -> Any:
    """Return a product or quotient; factors without imaginary part scale both parts."""

    def times(x: Any, y: Any) -> Any:
        return run("aten.mul.Tensor", [x, y], like)

    def plain(x: Any) -> bool:
        return not isinstance(x, Complex | complex) and not (
            isinstance(x, torch.Tensor) and x.is_complex()
        )

    first, second = args[:2]
    if name == "mul" and plain(first):
        first, second = second, first
    a = _parts(first)
    if plain(second):
        scaled = f"aten.{name}.Tensor"
        return Complex(*(run(scaled, [x, second], like) for x in (a.real, a.imag)))
    b = _parts(second)
    if name == "div":
        # Relative to the larger part of the divisor, whose square may exceed the largest number.
        sizes = [run("aten.abs.default", [x], like) for x in (b.real, b.imag)]
        scale = run("aten.maximum.default", sizes, like)

        def over(x: Any, y: Any) -> Any:
            return run("aten.div.Tensor", [x, y], like)

        a, b = (Complex(over(x.real, scale), over(x.imag, scale)) for x in (a, b))
        size = _plus(run, times(b.real, b.real), times(b.imag, b.imag), like)
        turned = run("aten.neg.default", [b.imag], like)
        b = Complex(*(over(x, size) for x in (b.real, turned)))
    return Complex(
        _less(run, times(a.real, b.real), times(a.imag, b.imag), like),
        _plus(run, times(a.real, b.imag), times(a.imag, b.real), like),
    )


def _power(run: Run, x: Any, power: int, like: Any) -> Any:
    """Return a whole power as a product."""
    product: Any = 1.0 + 0j
    for _ in range(abs(power)):
        product = x if isinstance(product, complex) else _product(run, "mul", [product, x], like)
    if power == 0:
        ones = torch.ones((1,) * len(like.shape)).expand(like.shape)
        return Complex(ones, torch.zeros_like(ones))
    return product if power > 0 else _product(run, "div", [1.0 + 0j, product], like)


def _transform(run: Run, name: str, args: Sequence[Any]) -> Any:
    """Return a discrete Fourier transform over dims, one after the other."""
    x = args[0] if name == "_fft_r2c" else _parts(args[0])
    shape = list(x.shape)
    dims = [d % len(shape) for d in args[1]]
    sizes = [shape[d] for d in dims]
    forward = name == "_fft_r2c" or (name == "_fft_c2c" and bool(args[3]))
    if name == "_fft_c2r":
        sizes[-1] = args[3]
    scale = math.prod(sizes) ** {0: 0.0, 1: -0.5, 2: -1.0}[args[2]]
    order = list(zip(dims, sizes, strict=True))
    if name == "_fft_r2c":  # the last dim is real, and so the first one to transform
        order = order[::-1]
    for step, (dim, size) in enumerate(order):
        first, last = step == 0, step == len(order) - 1
        from_real = name == "_fft_r2c" and first
        to_real = name == "_fft_c2r" and last
        half = (from_real and bool(args[3])) or to_real
        matrix = _matrix(size, forward, half, from_real, to_real) * (scale if last else 1.0)
        x = _along(run, x, dim, matrix, from_real=from_real, to_real=to_real)
    return x


def _matrix(size: int, forward: bool, half: bool, from_real: bool, to_real: bool) -> np.ndarray:
    """Return the real matrix of a transform; complex sides have real parts, then imaginary ones."""
    waves = np.arange(size // 2 + 1 if half else size)
    # Products of integers modulo the size: large angles would lose digits.
    angle = 2 * np.pi / size * (np.outer(np.arange(size), waves) % size)
    cosine, sine = np.cos(angle), np.sin(angle) * (-1 if forward else 1)
    if from_real:
        return np.hstack([cosine, sine])
    if to_real:
        weights = np.where((waves == 0) | (2 * waves == size), 1.0, 2.0)[:, None]
        edge = np.where((waves == 0) | (2 * waves == size), 0.0, 2.0)[:, None]
        return np.vstack([weights * cosine.T, -edge * sine.T])
    return np.block([[cosine, sine], [-sine, cosine]])


def _along(
    run: Run, x: Any, dim: int, matrix: np.ndarray, *, from_real: bool, to_real: bool
) -> Any:
    """Return the product of a dim with a matrix."""
    parts = [x] if from_real else [x.real, x.imag]
    shape = list(parts[0].shape)
    order = [d for d in range(len(shape)) if d != dim] + [dim]
    outer = [shape[d] for d in order[:-1]]

    dtype = next((p.dtype for p in parts if isinstance(p, View | Expr)), "float32")

    def fake(*sizes: int) -> Any:
        return SimpleNamespace(shape=torch.Size(sizes), dtype=getattr(torch, dtype))

    turned = [
        run("aten.permute.default", [p, order], fake(*(shape[d] for d in order))) for p in parts
    ]
    width = len(parts) * shape[dim]
    if len(parts) == 2:
        rows = run("aten.cat.default", [turned, len(shape) - 1], fake(*outer, width))
    else:
        rows = turned[0]
    flat = run("aten.view.default", [rows, None], fake(math.prod(outer), width))
    if to_real and len(matrix) != width:
        raise ConfigError(
            f"an inverse transform of {shape[dim]} waves to {matrix.shape[1]} points",
            where="export to C",
            allowed=f"{len(matrix) // 2} waves",
        )
    constant = torch.from_numpy(np.ascontiguousarray(matrix, dtype))
    product = run("aten.mm.default", [flat, constant], fake(math.prod(outer), matrix.shape[1]))
    count = matrix.shape[1] if to_real else matrix.shape[1] // 2
    back = [order.index(d) for d in range(len(shape))]
    made = []
    for part in range(1 if to_real else 2):
        own: Value = run(
            "aten.slice.Tensor",
            [product, 1, part * count, (part + 1) * count, 1],
            fake(math.prod(outer), count),
        )
        own = run("aten.view.default", [own, None], fake(*outer, count))
        final = list(shape)
        final[dim] = count
        made.append(run("aten.permute.default", [own, back], fake(*final)))
    return made[0] if to_real else Complex(*made)
