"""Orthonormal modal bases and the exact integrals of the discontinuous Galerkin kernels.

Polynomials are kept orthogonal with rational coefficients, so every integral is a rational number
over the root of another one: which constants are zero is known exactly, and no quadrature aliases.
Reference cell [-1, 1]^2 with coordinates (xi, eta) for (x, v).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
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
    """A basis polynomial and the integral of its square."""

    polynomial: Polynomial
    square: Fraction
    leading: Exponents


def exponents(p: int, kind: Kind, dims: int) -> list[Exponents]:
    """Return the monomials of a basis: all up to p, or those of superlinear degree up to p.

    Example:
        >>> len(exponents(2, "serendipity", 2)), len(exponents(2, "tensor", 2))
        (8, 9)
        >>> len(exponents(2, "serendipity", 3)), len(exponents(2, "tensor", 3))
        (20, 27)
    """
    found = [
        e
        for e in itertools.product(range(p + 1), repeat=dims)
        if kind == "tensor" or sum(k for k in e if k > 1) <= p
    ]
    return sorted(found, key=lambda e: (sum(e), e))


@cache
def modes(p: int, kind: Kind, dims: int) -> tuple[Mode, ...]:
    """Return the orthogonal basis by Gram-Schmidt over the monomials, in rational arithmetic."""
    found: list[Mode] = []
    for e in exponents(p, kind, dims):
        poly: dict[Exponents, Fraction] = {e: Fraction(1)}
        for mode in found:
            share = integral(multiply({e: Fraction(1)}, mode.polynomial)) / mode.square
            for key, value in mode.polynomial.items():
                poly[key] = poly.get(key, Fraction(0)) - share * value
        poly = {key: value for key, value in poly.items() if value}
        found.append(Mode(poly, integral(multiply(poly, poly)), e))
    return tuple(found)


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
    """Return the trace at -1 or 1 along an axis, in the variables that remain."""
    trace: dict[Exponents, Fraction] = {}
    for e, value in poly.items():
        key = tuple(k for i, k in enumerate(e) if i != axis)
        trace[key] = trace.get(key, Fraction(0)) + value * Fraction(side) ** e[axis]
    return trace


def embedded(poly: Polynomial, axis: int, dims: int) -> dict[Exponents, Fraction]:
    """Return a polynomial of one variable as one of `dims` variables, along `axis`."""
    return {tuple(k if i == axis else 0 for i in range(dims)): c for (k,), c in poly.items()}


def normalised(value: Fraction, *squares: Fraction) -> float:
    """Return value / sqrt(product of squares), rounded once from exact numbers."""
    if not value:
        return 0.0
    ratio = value * value / math.prod(squares)
    root = Fraction(math.isqrt(ratio.numerator << 256), math.isqrt(ratio.denominator << 256))
    return math.copysign(float(root), value)


@dataclass(frozen=True)
class Integrals:
    """Exact integrals of the 1X1V scheme: `psi` are modes of a cell, `phi` Legendre modes.

    Attributes:
        num: N, modes of a cell.
        faces: M = p + 1, modes of a face and of the field.
        advect: (N, N) of d(psi_l)/dxi psi_m.
        advect_eta: (N, N) of d(psi_l)/dxi eta psi_m.
        accelerate: (N, M, N) of d(psi_l)/deta phi_n(xi) psi_m.
        triple: (M, M, M) of phi_n phi_j phi_k.
        times: (M, M) of phi_k eta phi_j.
        trace_x: side -> (M, N), the modes of the trace at xi = side.
        trace_v: side -> (M, N), the modes of the trace at eta = side.
        moments: (3, M, N) of phi_k(xi) eta^r psi_m for r = 0, 1, 2.
        edge: (M,) of phi_n(1).
        rise: (M, M), modes of the antiderivative from -1 of phi_j.
        parity: (N, 2), 1 or -1 under reflection of xi and of eta.
    """

    num: int
    faces: int
    advect: np.ndarray
    advect_eta: np.ndarray
    accelerate: np.ndarray
    triple: np.ndarray
    times: np.ndarray
    trace_x: Mapping[int, np.ndarray]
    trace_v: Mapping[int, np.ndarray]
    moments: np.ndarray
    edge: np.ndarray
    rise: np.ndarray
    parity: np.ndarray


@cache
def integrals(p: int, kind: Kind) -> Integrals:
    """Return the constants of the 1X1V kernels for one basis.

    Example:
        >>> constants = integrals(2, "serendipity")
        >>> int((constants.advect != 0).sum()), constants.num, constants.faces
        (5, 8, 3)
    """
    psi, phi = modes(p, kind, 2), modes(p, "tensor", 1)
    along_x = [Mode(embedded(f.polynomial, 0, 2), f.square, f.leading) for f in phi]
    eta: Polynomial = {(0, 1): Fraction(1)}
    num, faces = len(psi), len(phi)

    def table(shape: tuple[int, ...], entry) -> np.ndarray:
        return np.array([entry(*i) for i in np.ndindex(*shape)]).reshape(shape)

    def pair(axis: int, factor: Polynomial | None = None):
        def entry(row: int, col: int) -> float:
            parts = [derivative(psi[row].polynomial, axis), psi[col].polynomial]
            product = multiply(*parts, *([factor] if factor else []))
            return normalised(integral(product), psi[row].square, psi[col].square)

        return table((num, num), entry)

    def accelerate(row: int, n: int, col: int) -> float:
        parts = (derivative(psi[row].polynomial, 1), along_x[n].polynomial, psi[col].polynomial)
        squares = (psi[row].square, phi[n].square, psi[col].square)
        return normalised(integral(multiply(*parts)), *squares)

    def triple(*index: int) -> float:
        parts = [phi[i].polynomial for i in index]
        return normalised(integral(multiply(*parts)), *(phi[i].square for i in index))

    def times(k: int, j: int) -> float:
        product = multiply(phi[k].polynomial, phi[j].polynomial, {(1,): Fraction(1)})
        return normalised(integral(product), phi[k].square, phi[j].square)

    def trace(axis: int, side: int) -> np.ndarray:
        def entry(k: int, m: int) -> float:
            product = multiply(phi[k].polynomial, at(psi[m].polynomial, axis, side))
            return normalised(integral(product), phi[k].square, psi[m].square)

        return table((faces, num), entry)

    def moment(power: int, k: int, m: int) -> float:
        product = multiply(along_x[k].polynomial, psi[m].polynomial, *([eta] * power))
        return normalised(integral(product), phi[k].square, psi[m].square)

    def rise(k: int, j: int) -> float:
        grown = _antiderivative(phi[j].polynomial)
        product = multiply(phi[k].polynomial, grown)
        return normalised(integral(product), phi[k].square, phi[j].square)

    return Integrals(
        num, faces, pair(0), pair(0, eta), table((num, faces, num), accelerate),
        table((faces, faces, faces), triple), table((faces, faces), times),
        {side: trace(0, side) for side in (-1, 1)}, {side: trace(1, side) for side in (-1, 1)},
        table((3, faces, num), moment),
        np.array([math.sqrt(n + 0.5) for n in range(faces)]), table((faces, faces), rise),
        np.array([[(-1) ** k for k in mode.leading] for mode in psi]),
    )  # fmt: skip


def _antiderivative(poly: Polynomial) -> dict[Exponents, Fraction]:
    """Return the antiderivative of a polynomial of one variable that is zero at -1."""
    grown: dict[Exponents, Fraction] = {(k + 1,): value / (k + 1) for (k,), value in poly.items()}
    grown[0,] = -sum((value * Fraction(-1) ** e[0] for e, value in grown.items()), Fraction(0))
    return grown


def evaluate(p: int, kind: Kind, xi: np.ndarray, eta: np.ndarray) -> np.ndarray:
    """Return the values of the modes, (N, *shape), at points of the reference cell."""
    return np.stack([
        sum(float(c) * xi ** e[0] * eta ** e[1] for e, c in mode.polynomial.items())
        / math.sqrt(mode.square)
        for mode in modes(p, kind, 2)
    ])  # fmt: skip


def legendre(p: int, xi: np.ndarray) -> np.ndarray:
    """Return the values of the orthonormal Legendre modes, (p + 1, *shape)."""
    return np.stack([
        sum(float(c) * xi ** e[0] for e, c in mode.polynomial.items()) / math.sqrt(mode.square)
        for mode in modes(p, "tensor", 1)
    ])  # fmt: skip
