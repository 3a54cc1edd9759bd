"""Generator of the Triton kernels of spherical harmonics: straight-line code, one edge per thread.

The formulas are those of `cpu.py`: with Y the unit-norm harmonics and D_k their derivative
constants, the gradient of <g, Y> along k is <D_k^T g, Y>, its derivatives <D_j^T D_k^T g, Y>.
"""

from __future__ import annotations

import math

from scitoolkit.ops.codegen.triton_rows import HEAD, kernel, load, store
from scitoolkit.ops.spherical_harmonics.spec import HarmonicsSpec, derivative, index, sectoral


def _sum(terms: list[str]) -> str:
    return " + ".join(terms) or "zero"


def _vector(spec: HarmonicsSpec) -> list[str]:
    """Load x, y, z and, if `normalize` is set, divide them by the length; zero stays zero."""
    lines = [f"{name} = {load('X', 3, k)}" for k, name in enumerate("xyz")]
    lines.append("zero = x * 0.0")
    if spec.normalize:
        lines += [
            "length2 = x * x + y * y + z * z",
            "is_zero = length2 == 0.0",
            "inverse = tl.where(is_zero, 0.0, 1.0 / tl.sqrt(tl.where(is_zero, 1.0, length2)))",
            "x, y, z = x * inverse, y * inverse, z * inverse",
        ]
    return lines


def _components(max_degree: int) -> list[tuple[int, int]]:
    return [(n, m) for n in range(max_degree + 1) for m in range(-n, n + 1)]


def _values(max_degree: int) -> list[str]:
    """Assign the unit-norm harmonics Y0, Y1, ... up to `max_degree`."""
    lines = ["square = x * x + y * y + z * z", "c0 = zero + 1.0", "s0 = zero"]
    for m in range(1, max_degree + 1):
        lines.append(f"c{m} = c{m - 1} * z - s{m - 1} * x")
        lines.append(f"s{m} = c{m - 1} * x + s{m - 1} * z")
    for m in range(max_degree + 1):
        for degree in range(m, max_degree + 1):
            lines.append(f"p{degree}_{m} = {_polar(degree, m)}")
            lines.append(f"Y{index(degree, m)} = p{degree}_{m} * c{m}")
            if m:
                lines.append(f"Y{index(degree, -m)} = p{degree}_{m} * s{m}")
    return lines


def _polar(degree: int, m: int) -> str:
    if degree == m:
        return f"zero + {sectoral(m)!r}"
    norm = math.sqrt(degree**2 - m * m)
    value = f"{(2 * degree - 1) / norm!r} * y * p{degree - 1}_{m}"
    if degree > m + 1:
        below = math.sqrt((degree - 1) ** 2 - m * m) / norm
        value += f" - {below!r} * square * p{degree - 2}_{m}"
    return value


def _places(spec: HarmonicsSpec) -> list[tuple[int, int, int]]:
    """Return (degree, m, column) of every component of the output."""
    places, column = [], 0
    for degree in spec.degrees:
        for m in range(-degree, degree + 1):
            places.append((degree, m, column))
            column += 1
    return places


def _incoming(spec: HarmonicsSpec) -> list[str]:
    """Assign G<i>, the incoming gradient with respect to the unit-norm harmonics."""
    lines = []
    for degree, m in _components(spec.max_degree):
        loads = [
            load("G", spec.dim_out, column)
            for n, mm, column in _places(spec)
            if (n, mm) == (degree, m)
        ]
        scaled = f"{spec.scale(degree)!r} * ({' + '.join(loads)})" if loads else "zero"
        lines.append(f"G{index(degree, m)} = {scaled}")
    return lines


def _pulled(source: str, target: str, max_degree: int) -> list[str]:
    """Assign target<k>_<i> = (D_k^T source)_i for degrees below `max_degree`."""
    return [
        f"{target}{axis}_{index(degree, m)} = "
        + _sum(
            [
                f"{factor!r} * {source}{index(degree + 1, above)}"
                for above in range(-degree - 1, degree + 2)
                for k, factor in derivative(axis, degree + 1, above)
                if k == m
            ]
        )
        for axis in range(3)
        for degree, m in _components(max_degree - 1)
    ]


def _with_values(source: str, target: str, max_degree: int) -> list[str]:
    """Assign target<k> = sum_i source<k>_<i> Y<i>."""
    numbers = [index(*component) for component in _components(max_degree - 1)]
    return [
        f"{target}{axis} = {_sum([f'{source}{axis}_{i} * Y{i}' for i in numbers])}"
        for axis in range(3)
    ]


def _dot(a: str, b: str) -> str:
    return " + ".join(f"{a}{k} * {b}{k}" for k in range(3))


def _across(source: str, target: str) -> list[str]:
    """Assign the components of `source` perpendicular and along (`<target>_along`) u."""
    lines = [f"{target}_along = {_dot(source, 'u')}"]
    return lines + [f"{target}{k} = {source}{k} - u{k} * {target}_along" for k in range(3)]


UNIT = ["u0, u1, u2 = x, y, z"]


def _forward(spec: HarmonicsSpec) -> list[str]:
    return [
        *_vector(spec),
        *_values(spec.max_degree),
        *(
            store("Z", spec.dim_out, column, f"{spec.scale(n)!r} * Y{index(n, m)}")
            for n, m, column in _places(spec)
        ),
    ]


def _gradient(spec: HarmonicsSpec) -> list[str]:
    """Assign g0, g1, g2: the gradient with respect to the (unit) vector."""
    return [
        *_vector(spec),
        *_values(spec.max_degree),
        *_incoming(spec),
        *_pulled("G", "h", spec.max_degree),
        *_with_values("h", "g", spec.max_degree),
    ]


def _backward(spec: HarmonicsSpec) -> list[str]:
    lines, names = _gradient(spec), ["g0", "g1", "g2"]
    if spec.normalize:
        lines += UNIT + _across("g", "a")
        names = [f"a{k} * inverse" for k in range(3)]
    return lines + [store("GX", 3, k, name) for k, name in enumerate(names)]


def _double_backward(spec: HarmonicsSpec) -> list[str]:
    """Gradients of <d, gradient> with respect to G and the vectors."""
    lines = [*_gradient(spec), *(f"d{k} = {load('DX', 3, k)}" for k in range(3))]
    if spec.normalize:  # the unit vector's change along d
        lines += UNIT + _across("d", "dp") + [f"v{k} = dp{k} * inverse" for k in range(3)]
    else:
        lines += [f"v{k} = d{k}" for k in range(3)]
    for degree, m, column in _places(spec):
        parts = [
            f"v{axis} * ({' + '.join(f'{f!r} * Y{index(degree - 1, k)}' for k, f in terms)})"
            for axis in range(3)
            if (terms := derivative(axis, degree, m) if degree else ())
        ]
        value = f"{spec.scale(degree)!r} * ({_sum(parts)})"
        lines.append(store("GG", spec.dim_out, column, value))
    for component in _components(spec.max_degree - 1):
        i = index(*component)
        lines.append(f"q{i} = v0 * h0_{i} + v1 * h1_{i} + v2 * h2_{i}")
    lines += _pulled("q", "w", spec.max_degree - 1)
    lines += _with_values("w", "t", spec.max_degree - 1)
    results = ["t0", "t1", "t2"]
    if spec.normalize:
        lines += [*_across("t", "tp"), *_across("g", "gp"), f"mixed = {_dot('g', 'dp')}"]
        results = [
            f"inverse * (tp{k} - inverse * (u{k} * mixed + dp_along * gp{k} + gp_along * dp{k}))"
            for k in range(3)
        ]
    return lines + [store("GX", 3, k, value) for k, value in enumerate(results)]


def generate(spec: HarmonicsSpec) -> str:
    """Return the Triton source of forward, backward and double_backward of `spec`.

    Example:
        >>> "def forward(N, X, Z):" in generate(HarmonicsSpec((0, 1), "component", True))
        True
    """
    return (
        HEAD
        + kernel("forward", "X, Z", _forward(spec))
        + kernel("backward", "X, G, GX", _backward(spec))
        + kernel("double_backward", "X, G, DX, GG, GX", _double_backward(spec))
    )
