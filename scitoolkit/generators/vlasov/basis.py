"""Orthonormal modal bases and the exact integrals of the discontinuous Galerkin kernels.

The orthogonal polynomials have rational coefficients, so every integral is a rational number over
the square root of another one: zero constants are exact, and no quadrature causes aliasing.
The reference cell is [-1, 1]^2 with coordinates (xi, eta) for (x, v), in 1X2V with a third for vy.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Literal

import numpy as np

Kind = Literal["serendipity", "tensor"]
Exponents = tuple[int, ...]
Polynomial = Mapping[Exponents, Fraction]


@dataclass(frozen=True)
class Mode:
    """Basis polynomial and the integral of its square."""

    polynomial: Polynomial
    square: Fraction
    leading: Exponents


def exponents(p: int, kind: Kind, dims: int) -> list[Exponents]:
    """Return the monomials of a basis: tensor, or serendipity (superlinear degree up to p).

    Example:
        >>> len(exponents(2, "serendipity", 2)), len(exponents(2, "tensor", 2))
        (8, 9)
        >>> len(exponents(2, "serendipity", 3)), len(exponents(2, "tensor", 3))
        (20, 27)
    """
    monomials = [
        e
        for e in itertools.product(range(p + 1), repeat=dims)
        if kind == "tensor" or sum(k for k in e if k > 1) <= p
    ]
    return sorted(monomials, key=lambda e: (sum(e), e))


@cache
def modes(p: int, kind: Kind, dims: int) -> tuple[Mode, ...]:
    """Return the orthogonal basis by rational Gram-Schmidt orthogonalisation of the monomials."""
    modes_of_basis: list[Mode] = []
    for e in exponents(p, kind, dims):
        poly: dict[Exponents, Fraction] = {e: Fraction(1)}
        for mode in modes_of_basis:
            share = integral(multiply({e: Fraction(1)}, mode.polynomial)) / mode.square
            for key, value in mode.polynomial.items():
                poly[key] = poly.get(key, Fraction(0)) - share * value
        poly = {key: value for key, value in poly.items() if value}
        modes_of_basis.append(Mode(poly, integral(multiply(poly, poly)), e))
    return tuple(modes_of_basis)


def multiply(*factors: Polynomial) -> dict[Exponents, Fraction]:
    """Return the product of polynomials in the same variables."""
    product: dict[Exponents, Fraction] = dict(factors[0])
    for factor in factors[1:]:
        made: dict[Exponents, Fraction] = {}
        for (e, a), (f, b) in itertools.product(product.items(), factor.items()):
            key = tuple(i + j for i, j in zip(e, f, strict=True))
            made[key] = made.get(key, Fraction(0)) + a * b
        product = made
    return product


def integral(poly: Polynomial) -> Fraction:
    """Return the integral over [-1, 1]^dims: 2 / (k + 1) for even exponents, 0 for odd ones.

    Example:
        >>> integral({(2, 0): Fraction(3)})
        Fraction(4, 1)
    """
    total = Fraction(0)
    for e, value in poly.items():
        if all(k % 2 == 0 for k in e):
            total += value * math.prod(Fraction(2, k + 1) for k in e)
    return total


def derivative(poly: Polynomial, axis: int) -> dict[Exponents, Fraction]:
    """Return the derivative along an axis."""
    return {
        tuple(k - (i == axis) for i, k in enumerate(e)): e[axis] * value
        for e, value in poly.items()
        if e[axis]
    }


def at(poly: Polynomial, axis: int, side: int) -> dict[Exponents, Fraction]:
    """Return the trace at `side` = -1 or 1 of an axis, in the remaining variables."""
    trace: dict[Exponents, Fraction] = {}
    for e, value in poly.items():
        key = tuple(k for i, k in enumerate(e) if i != axis)
        trace[key] = trace.get(key, Fraction(0)) + value * Fraction(side) ** e[axis]
    return trace


def embedded(poly: Polynomial, axis: int, dims: int) -> dict[Exponents, Fraction]:
    """Return a polynomial of one variable as one of `dims` variables, along `axis`."""
    return {tuple(k if i == axis else 0 for i in range(dims)): c for (k,), c in poly.items()}


def normalised(value: Fraction, *squares: Fraction) -> float:
    """Return value / sqrt(product of squares), rounded once from exact rational numbers."""
    if not value:
        return 0.0
    ratio = value * value / math.prod(squares)
    # Both integer roots are exact to 128 bits behind the point, far beyond a double: the quotient
    # is rounded once, and equal constants are equal bit for bit.
    root = Fraction(math.isqrt(ratio.numerator << 256), math.isqrt(ratio.denominator << 256))
    return math.copysign(float(root), value)


@dataclass(frozen=True)
class Integrals:
    """Exact integrals of the scheme: `psi` are modes of a cell, `chi` of a face, `phi` Legendre.

    A face has the same kind of basis with one dimension less.

    Attributes:
        num: N, modes of a cell.
        faces: F, modes of a face.
        field: M = p + 1, modes of the field.
        advect: (N, N) of d(psi_l)/dxi psi_m.
        advect_eta: (N, N) of d(psi_l)/dxi eta psi_m.
        accelerate: (N, M, N) of d(psi_l)/deta phi_n(xi) psi_m.
        triple: (M, F, F) of phi_n(xi) chi_j chi_k, on a face in v.
        times: (F, F) of chi_k eta chi_j, on a face in x.
        trace_x: side -> (F, N), the modes of the trace at xi = side.
        trace_v: side -> (F, N), the modes of the trace at eta = side.
        moments: (3, M, N) of phi_k(xi) eta^r psi_m for r = 0, 1, 2.
        moments_y: (2, M, N), the same for r = 1, 2 and the coordinate of vy; (0, M, N) in 1X1V.
        edge: (M,) of phi_n(1).
        rise: (M, M), modes of the antiderivative from -1 of phi_j.
        parity: (N, dims), 1 or -1 under reflection of each coordinate.
    """

    num: int
    faces: int
    field: int
    advect: np.ndarray
    advect_eta: np.ndarray
    accelerate: np.ndarray
    triple: np.ndarray
    times: np.ndarray
    trace_x: Mapping[int, np.ndarray]
    trace_v: Mapping[int, np.ndarray]
    moments: np.ndarray
    moments_y: np.ndarray
    edge: np.ndarray
    rise: np.ndarray
    parity: np.ndarray


def _inner(*factors: Mode | Polynomial) -> float:
    """Return the integral of a product of normalised modes and plain polynomials."""
    product = multiply(*(f.polynomial if isinstance(f, Mode) else f for f in factors))
    squares = [f.square for f in factors if isinstance(f, Mode)]
    return normalised(integral(product), *squares)


def _table(shape: tuple[int, ...], entry: Callable[..., float]) -> np.ndarray:
    return np.array([entry(*i) for i in np.ndindex(*shape)]).reshape(shape)


@cache
def integrals(p: int, kind: Kind, dims: int = 2) -> Integrals:
    """Return the constants of the kernels for one basis.

    Args:
        p: degree.
        kind: of the basis.
        dims: 2 in 1X1V, 3 in 1X2V.

    Example:
        >>> constants = integrals(2, "serendipity")
        >>> int((constants.advect != 0).sum()), constants.num, constants.faces
        (5, 8, 3)
        >>> constants = integrals(2, "serendipity", 3)
        >>> constants.num, constants.faces, constants.field
        (20, 8, 3)
    """
    psi, chi, phi = modes(p, kind, dims), modes(p, kind, dims - 1), modes(p, "tensor", 1)
    num, faces, field = len(psi), len(chi), len(phi)

    def power(axis: int, exponent: int, variables: int = dims) -> Polynomial:
        return {tuple(exponent * (i == axis) for i in range(variables)): Fraction(1)}

    def along(mode: Mode, variables: int) -> Mode:
        """Return a Legendre mode of xi as one of several variables."""
        return Mode(embedded(mode.polynomial, 0, variables), mode.square, mode.leading)

    def slope(mode: Mode, axis: int) -> Mode:
        return Mode(derivative(mode.polynomial, axis), mode.square, mode.leading)

    def trace(axis: int, side: int) -> np.ndarray:
        cut = [Mode(at(m.polynomial, axis, side), m.square, m.leading) for m in psi]
        return _table((faces, num), lambda k, m: _inner(chi[k], cut[m]))

    def moment(axis: int, exponent: int) -> np.ndarray:
        weight = power(axis, exponent)
        return _table((field, num), lambda k, m: _inner(weight, inside[k], psi[m]))

    inside = [along(mode, dims) for mode in phi]
    on_face = [along(mode, dims - 1) for mode in phi]
    d_xi, d_eta = ([slope(mode, axis) for mode in psi] for axis in (0, 1))
    eta, eta_face = power(1, 1), power(0, 1, dims - 1)
    moments_y = [moment(2, r) for r in (1, 2)] if dims == 3 else []
    return Integrals(
        num,
        faces,
        field,
        _table((num, num), lambda i, m: _inner(d_xi[i], psi[m])),
        _table((num, num), lambda i, m: _inner(eta, d_xi[i], psi[m])),
        _table((num, field, num), lambda i, n, m: _inner(d_eta[i], inside[n], psi[m])),
        _table((field, faces, faces), lambda n, j, k: _inner(on_face[n], chi[j], chi[k])),
        _table((faces, faces), lambda k, j: _inner(eta_face, chi[k], chi[j])),
        {side: trace(0, side) for side in (-1, 1)},
        {side: trace(1, side) for side in (-1, 1)},
        np.stack([moment(1, r) for r in range(3)]),
        np.array(moments_y).reshape(len(moments_y), field, num),
        np.array([math.sqrt(n + 0.5) for n in range(field)]),
        _table((field, field), lambda k, j: _inner(phi[k], _risen(phi[j]))),
        np.array([[(-1) ** k for k in mode.leading] for mode in psi]),
    )


def _risen(mode: Mode) -> Mode:
    return Mode(_antiderivative(mode.polynomial), mode.square, mode.leading)


def _antiderivative(poly: Polynomial) -> dict[Exponents, Fraction]:
    """Return the antiderivative, zero at -1, of a polynomial of one variable."""
    grown: dict[Exponents, Fraction] = {(k + 1,): value / (k + 1) for (k,), value in poly.items()}
    grown[0,] = -sum((value * Fraction(-1) ** e[0] for e, value in grown.items()), Fraction(0))
    return grown


def evaluate(p: int, kind: Kind, *points: np.ndarray) -> np.ndarray:
    """Return the values of the modes, (N, *shape), at points of the reference cell.

    Args:
        p: degree.
        kind: of the basis.
        points: the coordinates, arrays of one shape.
    """
    return np.stack(
        [
            sum(
                math.prod((x**k for x, k in zip(points, e, strict=True)), start=float(c))
                for e, c in mode.polynomial.items()
            )
            / math.sqrt(mode.square)
            for mode in modes(p, kind, len(points))
        ]
    )


def legendre(p: int, xi: np.ndarray) -> np.ndarray:
    """Return the values of the orthonormal Legendre modes, (p + 1, *shape)."""
    return evaluate(p, "tensor", xi)
