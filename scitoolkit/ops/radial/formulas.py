"""Formulas of radial bases as assignments whose expressions are valid in both C and Triton.

All are evaluated in float64. Each family has a three-term recursion (or an exponential) that is
differentiated term by term, so no term divides by r, and r = 0 is no special case:

    bessel     s_n = sin(n t)/t:  s_{n+1} = 2 cos(t) s_n - s_{n-1},  t = pi r/c in [0, pi)
    chebyshev  T_{n+1} = 2 t T_n - T_{n-1},  t = 2 r/c - 1

Expressions consist of + - * on names and numbers and of two functions defined in each language:
`exponential(a)` for a <= 0, and `within(a, outside)`, which is 0 where `outside` holds and else a.
"""

from __future__ import annotations

import math
from typing import Any

from scitoolkit.ops.radial.spec import RadialSpec, envelope_coefficients

NUM_TERMS = 17  # of the series in t^2, whose remainder at t = pi is below 1e-17

Lines = list[tuple[str, str]]  # (name, expression), each name once


def _horner(coefficients: list[float], variable: str) -> str:
    """Return a polynomial, lowest coefficient first, as an expression in Horner's scheme."""
    text = repr(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        text = f"({text} * {variable} + {coefficient!r})"
    return text


def _sinc_series(order: int) -> list[float]:
    """Return the series in t^2 of sin(t)/t, of its derivative over t, or of the second one."""
    series = []
    for k in range(NUM_TERMS):
        if order == 0:
            series.append((-1) ** k / math.factorial(2 * k + 1))
        elif order == 1:
            series.append((-1) ** (k + 1) * (2 * k + 2) / math.factorial(2 * k + 3))
        else:
            series.append((-1) ** (k + 1) * (2 * k + 2) * (2 * k + 1) / math.factorial(2 * k + 3))
    return series


def _bessel_start(spec: RadialSpec) -> Lines:
    cosine = [(-1) ** k / math.factorial(2 * k) for k in range(NUM_TERMS)]
    return [
        ("t", f"r * {math.pi / spec.cutoff!r}"),
        ("tt", "t * t"),
        ("cosine", _horner(cosine, "tt")),
        ("f0", _horner(_sinc_series(0), "tt")),
        ("sine", "t * f0"),
        ("d0", f"t * {_horner(_sinc_series(1), 'tt')}"),
        ("e0", _horner(_sinc_series(2), "tt")),
    ]


def _bessel(spec: RadialSpec, n: int) -> Lines:
    if n == 0:
        return []
    f, d, e = f"f{n - 1}", f"d{n - 1}", f"e{n - 1}"
    before = (f" - f{n - 2}", f" - d{n - 2}", f" - e{n - 2}") if n > 1 else ("", "", "")
    return [
        (f"f{n}", f"2.0 * cosine * {f}{before[0]}"),
        (f"d{n}", f"2.0 * cosine * {d} - 2.0 * sine * {f}{before[1]}"),
        (f"e{n}", f"2.0 * cosine * {e} - 4.0 * sine * {d} - 2.0 * cosine * {f}{before[2]}"),
    ]


def _chebyshev_start(spec: RadialSpec) -> Lines:
    return [
        ("t", f"r * {2 / spec.cutoff!r} - 1.0"),
        ("zero", "r * 0.0"),
        ("one", "zero + 1.0"),
    ]


def _chebyshev(spec: RadialSpec, n: int) -> Lines:
    if n < 2:
        values = ("one", "zero", "zero") if n == 0 else ("t", "one", "zero")
        return list(zip((f"f{n}", f"d{n}", f"e{n}"), values, strict=True))
    f, d, e = f"f{n - 1}", f"d{n - 1}", f"e{n - 1}"
    return [
        (f"f{n}", f"2.0 * t * {f} - f{n - 2}"),
        (f"d{n}", f"2.0 * {f} + 2.0 * t * {d} - d{n - 2}"),
        (f"e{n}", f"4.0 * {d} + 2.0 * t * {e} - e{n - 2}"),
    ]


def _gaussian(spec: RadialSpec, n: int) -> Lines:
    a, center = spec.gaussian_exponent, spec.cutoff * n / (spec.num_basis - 1)
    return [
        (f"x{n}", f"r - {center!r}"),
        (f"f{n}", f"exponential({a!r} * x{n} * x{n})"),
        (f"d{n}", f"{2 * a!r} * x{n} * f{n}"),
        (f"e{n}", f"{2 * a!r} * (f{n} + x{n} * d{n})"),
    ]


# By kind: assignments shared by all functions; f, d, e of function n; factors of f and of d/dr.
KINDS: dict[str, tuple[Any, ...]] = {
    "bessel": (
        _bessel_start,
        _bessel,
        lambda spec: (math.sqrt(2 / spec.cutoff) * math.pi / spec.cutoff, math.pi / spec.cutoff),
    ),
    "chebyshev": (_chebyshev_start, _chebyshev, lambda spec: (1.0, 2 / spec.cutoff)),
    "gaussian": (lambda spec: [], _gaussian, lambda spec: (1.0, 1.0)),
}


def start(spec: RadialSpec) -> Lines:
    """Return the assignments shared by all functions, given `r` and `outside` (r >= cutoff).

    They define the cutoff function w and its derivatives w1, w2. NaN propagates.
    """
    p, rate = spec.envelope, 1 / spec.cutoff
    slope = -p * (p + 1) * (p + 2) / 2 * rate
    below = "v * v" if p == 2 else f"u{p - 2} * v * v"
    polynomial = _horner(envelope_coefficients(p), "u1")
    return [
        ("u1", f"r * {rate!r}"),
        ("v", "1.0 - u1"),
        *((f"u{k}", f"u{k - 1} * u1") for k in range(2, p)),
        ("w", f"within(v * v * v * {polynomial}, outside)"),
        ("w1", f"within({slope!r} * u{p - 1} * v * v, outside)"),
        ("w2", f"within({slope * rate!r} * ({p - 1.0!r} * {below} - 2.0 * u{p - 1} * v), outside)"),
        *KINDS[spec.kind][0](spec),
    ]


def function(spec: RadialSpec, n: int) -> Lines:
    """Return the assignments of F<n>, D<n>, E<n>: function n times w, and its two derivatives."""
    _, lines, factors = KINDS[spec.kind]
    scale, rate = factors(spec)
    f, d, e = (
        name if factor == 1 else f"({name} * {factor!r})"
        for name, factor in (
            (f"f{n}", scale),
            (f"d{n}", scale * rate),
            (f"e{n}", scale * rate**2),
        )
    )
    return [
        *lines(spec, n),
        (f"F{n}", f"{f} * w"),
        (f"D{n}", f"{d} * w + {f} * w1"),
        (f"E{n}", f"{e} * w + 2.0 * {d} * w1 + {f} * w2"),
    ]
