"""Equations in text as a pseudo-spectral system: a linear part for each wave, and the rest.

Each equation has either one derivative in time, that of its field, or none; a field without a
derivative in time follows from the others by a linear equation with constant coefficients, such as
a stream function. What is linear with constant coefficients in the field itself is advanced exactly
(exponential time differencing), and the rest is evaluated at points.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import sympy

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.expressions import Names, compiled, derivative_of, parse, unknowns
from scitoolkit.generators.mirrored_box import MirroredBox

Key = tuple[str, tuple[int, ...]]
"""A field and the orders of its derivative along time and each dim."""
HIGHEST = 5
"""Degree of the products of fields up to which waves are truncated against aliasing."""


@dataclass(frozen=True)
class Row:
    """Equation of one field.

    Attributes:
        linear: {orders along the dims: coefficient} of the derivatives of the field itself. Its
            derivative in time is their sum plus the rest; a field without one makes them zero.
        rest: compiled expression of the values of `keys` and of coordinates.
        keys: (field, orders) in the rest.
        degree: of the products of fields in the rest.
        uniform: the terms of the rest that do not depend on coordinates; None if all of them.
    """

    linear: Mapping[tuple[int, ...], float]
    rest: Callable[[Mapping[Key, Any], Mapping[str, Any]], Any]
    keys: Sequence[Key]
    degree: int
    uniform: Callable[[Mapping[Key, Any], Mapping[str, Any]], Any] | None = None


@dataclass(frozen=True)
class SpectralSystem:
    """Equations of fields in a box.

    Attributes:
        dims: of space.
        evolving: {field: its equation}, with a derivative in time.
        following: {field: its equation}, without.
    """

    dims: tuple[str, ...]
    evolving: Mapping[str, Row]
    following: Mapping[str, Row]

    @property
    def degree(self) -> int:
        """Largest degree of the products of fields, at least 1."""
        return max(1, *(row.degree for row in (*self.evolving.values(), *self.following.values())))

    @functools.cached_property
    def linear(self) -> bool:
        """Whether all waves are independent."""
        rows = (*self.evolving.values(), *self.following.values())
        return not any(row.keys for row in rows)

    def symbol(self, row: Row, waves: Sequence[np.ndarray]) -> np.ndarray:
        """Return the factor of the linear part of an equation for each wave."""
        shape = np.broadcast_shapes(*(k.shape for k in waves))
        total = np.zeros(shape, complex)
        for orders, coefficient in row.linear.items():
            total += coefficient * _power(waves, orders)
        return total if np.abs(total.imag).any() else total.real

    def without_coordinates(self) -> SpectralSystem:
        """Return the system without the terms of rates that depend on coordinates."""
        evolving = {f: replace(r, rest=r.uniform or r.rest) for f, r in self.evolving.items()}
        return replace(self, evolving=evolving)

    def rate(
        self, box: MirroredBox, largest: int, signs: np.ndarray | None = None
    ) -> Callable[[np.ndarray], np.ndarray]:
        """Return the function of spectra (fields, waves...) that is the rest of their rates.

        Args:
            box: points and waves.
            largest: wavenumber, in waves per length of the box, beyond which the rest is truncated.
            signs: (evolving fields, dims) as for `MirroredBox.extended`. Rates that depend on
                coordinates then continue behind walls with the symmetry of their field, and
                otherwise as functions of the distance from the walls.
        """
        waves, axes, size = box.waves(), range(-len(self.dims), 0), box.sizes
        # Half a wavenumber more than the last one that counts, so that rounding decides nothing.
        limit = (largest + 0.5) * 2 * np.pi / box.length
        resolved = functools.reduce(np.logical_and, [np.abs(k) < limit for k in waves])
        points = dict(zip(self.dims, box.points(), strict=True))
        keys = {k for row in (*self.evolving.values(), *self.following.values()) for k in row.keys}
        factors = {orders: _power(waves, orders) for _, orders in keys}
        inverses = {}
        for name, row in self.following.items():
            symbol = self.symbol(row, waves)
            # symbol f + rest = 0 for each wave. A wave that the equation leaves open, such as the
            # mean of a stream function, is 0.
            inverses[name] = np.divide(-1, symbol, out=np.zeros_like(symbol), where=symbol != 0)

        def values(
            spectra: Mapping[str, np.ndarray], row: Row, sign: np.ndarray | None = None
        ) -> np.ndarray:
            at = {
                (field, orders): np.fft.irfftn(factors[orders] * spectra[field], size, axes)
                for field, orders in row.keys
            }
            made = np.broadcast_to(row.rest(at, points), size)
            if sign is not None and row.uniform is not None:
                made = box.extended(box.inside(made)[None], sign[None])[0]
            return resolved * np.fft.rfftn(made, axes=axes)

        def rest(state: np.ndarray) -> np.ndarray:
            spectra = dict(zip(self.evolving, state, strict=True))
            for name, row in self.following.items():
                spectra[name] = inverses[name] * values(spectra, row)
            rows = self.evolving.values()
            own = [None] * len(rows) if signs is None else signs
            return np.stack([values(spectra, r, sign) for r, sign in zip(rows, own, strict=True)])

        return rest


def _power(waves: Sequence[np.ndarray], orders: Sequence[int]) -> Any:
    """Return the factor of a derivative for each wave, complex if its order is odd."""
    factor: Any = 1.0
    for k, order in zip(waves, orders, strict=True):
        factor = factor * (1j * k) ** order
    total = int(np.sum(orders))
    # (i k)^n is real for even n up to rounding of complex powers.
    return factor.real if total and total % 2 == 0 else factor


@functools.lru_cache(maxsize=32)
def system_of(
    equations: tuple[str, ...], dims: tuple[str, ...], constants: tuple[tuple[str, float], ...]
) -> SpectralSystem:
    """Parse equations.

    Args:
        equations: see `scitoolkit.core.expressions` for the grammar; time is `t`.
        dims: of space.
        constants: (name, value).

    Raises:
        ConfigError: an unknown name, text that is not an equation, or equations that do not give
            each field its derivative in time or a linear equation.

    Example:
        >>> system = system_of(("dif(u,t) + u*dif(u,x) = 0.1*dif(u,x,x)",), ("x",), ())
        >>> system.evolving["u"].linear, system.degree
        ({(2,): 0.1}, 2)
    """
    fields = _fields(equations, dims, constants)
    names = Names(fields, ("t", *dims), dict(constants))
    rows, steady = {}, []
    for text in equations:
        expression = sympy.expand(parse(text, names, "generator.equations"))
        outside = expression.xreplace(_ones(expression))
        if names.symbol("t") in outside.free_symbols:
            raise _refused(text, "depends on time itself", "coordinates of space, and constants")
        times = [n for n in unknowns(expression) if derivative_of(n, names.dims)[1][0]]
        if not times:
            steady.append((text, expression))
            continue
        field, orders = derivative_of(times[0], names.dims)
        factor = expression.coeff(times[0])
        if len(times) > 1 or sum(orders) != 1 or not factor.is_number or field in rows:
            raise _refused(
                text,
                "has no single first derivative in time with a constant factor",
                "one equation with dif(f, t) for each evolving field f",
            )
        # factor f_t + others = 0, solved for f_t.
        rest = sympy.expand(-(expression - factor * times[0]) / factor)
        if times[0] in unknowns(rest):
            raise _refused(text, "is not linear in its derivative in time", "dif(f, t) once")
        rows[field] = _row(rest, field, names)
    following = {}
    for text, expression in steady:
        free = [f for f in fields if f not in rows and f not in following]
        inside = [
            f
            for f in free
            if any(derivative_of(n, names.dims)[0] == f for n in unknowns(expression))
        ]
        if len(inside) != 1:
            raise _refused(text, "gives no single field", f"one of {', '.join(free) or 'no field'}")
        row = _row(expression, inside[0], names)
        if any(key[0] == inside[0] for key in row.keys) or not row.linear:
            raise _refused(text, f"is not linear in {inside[0]}", "constant coefficients")
        following[inside[0]] = row
    lost = [f for f in fields if f not in rows and f not in following]
    if lost or not rows:
        raise ConfigError(
            f"no equation for {', '.join(lost)}" if lost else "no equation with dif(f, t)",
            where="generator.equations",
            fix="one equation for each field",
        )
    return SpectralSystem(dims, rows, following)


def _refused(text: str, what: str, allowed: str) -> ConfigError:
    return ConfigError(f"{text!r} {what}", where="generator.equations", allowed=allowed)


def _fields(
    equations: Sequence[str], dims: Sequence[str], constants: Sequence[tuple[str, float]]
) -> tuple[str, ...]:
    """Return the names that are differentiated, in the order of their appearance."""
    named = {name for name, _ in constants} | {"t", *dims}
    text = " ".join(equations)
    order = [m.group(1) for m in re.finditer(r"\bdif\(\s*([A-Za-z_]\w*)\s*,", text)]
    return tuple(f for f in dict.fromkeys(order) if f not in named)


def _row(expression: sympy.Expr, field: str, names: Names) -> Row:
    """Split the rate of a field into its linear part and the rest."""
    linear: dict[tuple[int, ...], float] = {}
    terms = []
    for term in sympy.Add.make_args(expression):
        inside = unknowns(term)
        if len(inside) == 1:
            node = next(iter(inside))
            name, (time, *orders) = derivative_of(node, names.dims)
            factor = term / node
            if name == field and factor.is_number and not time:
                linear[tuple(orders)] = linear.get(tuple(orders), 0.0) + float(factor)
                continue
        terms.append(term)
    rest, coordinates = sympy.Add(*terms), {names.symbol(d) for d in names.dims}
    uniform = [t for t in terms if not coordinates & t.xreplace(_ones(t)).free_symbols]
    symbols = {n: sympy.Dummy(f"f{i}") for i, n in enumerate(sorted(unknowns(rest), key=str))}
    place = {}
    for node, symbol in symbols.items():
        name, (_, *orders) = derivative_of(node, names.dims)
        place[symbol] = (name, tuple(orders))
    replaced = rest.xreplace(symbols)
    try:
        degree = sympy.Poly(replaced, *symbols.values()).total_degree() if symbols else 0
    except sympy.PolynomialError:
        # A quotient or a root of fields has no degree: it is truncated like the highest product.
        degree = HIGHEST
    plain = None
    if len(uniform) < len(terms):
        plain = compiled(sympy.Add(*uniform).xreplace(symbols), place)
    keys = tuple(place.values())
    return Row(linear, compiled(replaced, place), keys, min(degree, HIGHEST), plain)


def _ones(expression: sympy.Expr) -> dict[sympy.Expr, sympy.Integer]:
    """Return the replacement of fields and derivatives that leaves coordinates and constants."""
    return {n: sympy.Integer(1) for n in unknowns(expression)}
