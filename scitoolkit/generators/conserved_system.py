"""Equations in text as conservation laws: fluxes, second derivatives, and sources without any."""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import sympy

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.expressions import Names, Program, compiled, parse

WHERE = "generator.equations"
_PART = sympy.Function("dif")
"""Derivative as written: expression, dims."""


@dataclass(frozen=True)
class Law:
    """Rate of change of one field: -sum of dif(flux, dim) + sum of dif(part, dim, dim) + source.

    Attributes:
        fluxes: {axis: program}.
        second: [((axis, axis), program)].
        source: program.
        sloped: {axis: [program of the derivative of the flux by each field]}.
    """

    fluxes: Mapping[int, Program] = field(default_factory=dict)
    second: Sequence[tuple[tuple[int, ...], Program]] = ()
    source: Program | None = None
    sloped: Mapping[int, Sequence[Program]] = field(default_factory=dict)


@dataclass(frozen=True)
class ConservedSystem:
    """Conservation laws of fields in a box.

    Attributes:
        dims: of space.
        laws: {field: law}.
        speeds: {axis: program of the largest speed of a wave}, where stated.
    """

    dims: tuple[str, ...]
    laws: Mapping[str, Law]
    speeds: Mapping[int, Program]

    def flux(self, axis: int, state: np.ndarray, places: Mapping[str, Any]) -> np.ndarray:
        """Return the fluxes (fields, cells...) along an axis."""
        at, made = dict(zip(self.laws, state, strict=True)), np.zeros(state.shape)
        for own, law in zip(made, self.laws.values(), strict=True):
            if axis in law.fluxes:
                own[...] = law.fluxes[axis](at, places)
        return made

    def source(self, state: np.ndarray, places: Mapping[str, Any]) -> np.ndarray:
        """Return the sources (fields, cells...)."""
        at, made = dict(zip(self.laws, state, strict=True)), np.zeros(state.shape)
        for own, law in zip(made, self.laws.values(), strict=True):
            if law.source is not None:
                own[...] = law.source(at, places)
        return made

    def speed(self, axis: int, state: np.ndarray, places: Mapping[str, Any]) -> np.ndarray:
        """Return the largest speed of a wave along an axis in each cell."""
        if axis not in self.speeds:
            return self.fastest(axis, state, places)
        at = dict(zip(self.laws, state, strict=True))
        return np.broadcast_to(self.speeds[axis](at, places), state.shape[1:])

    def fastest(self, axis: int, state: np.ndarray, places: Mapping[str, Any]) -> np.ndarray:
        """Return the largest eigenvalue of the derivatives of the fluxes; NaN if one is complex."""
        at, count = dict(zip(self.laws, state, strict=True)), len(self.laws)
        matrix = np.zeros((*state.shape[1:], count, count))
        for row, law in enumerate(self.laws.values()):
            for column, program in enumerate(law.sloped.get(axis, ())):
                matrix[..., row, column] = program(at, places)
        if count == 1:
            return np.asarray(np.abs(matrix[..., 0, 0]))
        if not np.isfinite(matrix).all():
            return np.full(state.shape[1:], np.nan)
        values = np.linalg.eigvals(matrix)
        size = np.abs(values).max(-1)
        # A double eigenvalue is found to the root of rounding.
        return np.where(np.abs(values.imag).max(-1) <= 1e-6 * size + 1e-12, size, np.nan)


@functools.lru_cache(maxsize=32)
def conserved_system_of(
    equations: tuple[str, ...],
    dims: tuple[str, ...],
    constants: tuple[tuple[str, float], ...],
    where: tuple[tuple[str, str], ...] = (),
    speeds: tuple[tuple[str, str], ...] = (),
) -> ConservedSystem:
    """Parse conservation laws.

    Args:
        equations: such as `dif(h,t) + dif(m,x) = 0`; derivatives are taken as written.
        dims: of space.
        constants: (name, value).
        where: (name, expression), which may use earlier names.
        speeds: (dim, expression).

    Raises:
        ConfigError: an unknown name, or an equation that is no conservation law.

    Example:
        >>> system = conserved_system_of(("dif(u,t) + dif(u**2/2,x) = 0",), ("x",), ())
        >>> system.flux(0, np.array([[2.0, 4.0]]), {}).tolist()
        [[2.0, 8.0]]
    """
    expanded = _Definitions(where)
    texts = [expanded(text) for text in equations]
    fields = tuple(
        dict.fromkeys(
            m.group(1) for t in texts for m in re.finditer(r"\bdif\(\s*(\w+)\s*,\s*t\s*\)", t)
        )
    )
    names = Names(fields, ("t", *dims), dict(constants), {"dif": _as_written})
    symbols = {names.function(f): sympy.Dummy(f, real=True) for f in fields}
    axes = {names.symbol(d): axis for axis, d in enumerate(dims)}
    place = {symbol: f for f, symbol in zip(fields, symbols.values(), strict=True)}
    laws: dict[str, Law] = {}
    for text in texts:
        expression = sympy.expand(parse(text, names, WHERE), deep=False)
        name, rate = _solved(text, expression, names)
        if name in laws:
            raise _refused(text, f"is a second equation of {name}", "one for each field")
        laws[name] = _law(text, rate, names, symbols, axes, place)
    if not laws:
        raise ConfigError("no equation with dif(f, t)", where=WHERE, fix="one for each field")
    stated = {}
    for dim, text in speeds:
        if dim not in dims:
            raise ConfigError(f"speeds.{dim}", where="generator", allowed=", ".join(dims))
        node = parse(expanded(text), names, f"generator.speeds.{dim}").xreplace(symbols)
        stated[dims.index(dim)] = compiled(node, place)
    return ConservedSystem(dims, {f: laws[f] for f in fields}, stated)


class _Definitions:
    """Replacement of named expressions in a text, in brackets."""

    def __init__(self, where: Sequence[tuple[str, str]]) -> None:
        self.made: dict[str, str] = {}
        for name, text in where:
            self.made[name] = f"({self(text)})"

    def __call__(self, text: str) -> str:
        if not self.made:
            return text
        pattern = rf"\b({'|'.join(map(re.escape, self.made))})\b"
        return re.sub(pattern, lambda m: self.made[m.group(1)], text)


def _as_written(inner: sympy.Expr, *orders: sympy.Expr) -> sympy.Expr:
    """Return the derivative of an expression, which is not expanded."""
    dims: list[sympy.Expr] = []
    for order in orders:
        if order.is_Symbol:
            dims.append(order)
        elif order.is_Integer and dims and 0 < order <= 4:
            dims += [dims[-1]] * (int(order) - 1)
        else:
            raise ValueError(f"cannot differentiate with respect to {order}")
    if not dims:
        raise ValueError("dif(expression, dim, ...)")
    factor, parts = inner.as_independent(_PART)
    if parts.func == _PART and factor.is_number:
        inner, dims = factor * parts.args[0], [*parts.args[1:], *dims]
    if inner.has(_PART):
        raise ValueError("a derivative inside another; constant factors only")
    return _PART(inner, *dims)


def _solved(text: str, expression: sympy.Expr, names: Names) -> tuple[str, sympy.Expr]:
    """Return the field of an equation and its rate."""
    time = names.symbol("t")
    inside = [p for p in expression.atoms(_PART) if time in p.args[1:]]
    factor = expression.coeff(inside[0]) if len(inside) == 1 else sympy.S.Zero
    if not (factor.is_number and factor != 0 and inside[0].args[1:] == (time,)):
        raise _refused(text, "has no single dif(f, t) with a constant factor", "dif(f, t) once")
    rate = sympy.expand(-(expression - factor * inside[0]) / factor, deep=False)
    if time in rate.xreplace({names.function(f): sympy.S.One for f in names.fields}).free_symbols:
        raise _refused(text, "depends on time itself", "coordinates of space, and constants")
    return inside[0].args[0].func.__name__, rate


def _law(
    text: str,
    rate: sympy.Expr,
    names: Names,
    symbols: Mapping[sympy.Expr, sympy.Symbol],
    axes: Mapping[sympy.Expr, int],
    place: Mapping[sympy.Symbol, str],
) -> Law:
    fluxes: dict[int, sympy.Expr] = {}
    second, source = [], sympy.S.Zero
    for term in sympy.Add.make_args(rate):
        if not term.has(_PART):
            source += term
            continue
        factor, part = term.as_independent(_PART)
        along = tuple(axes[d] for d in part.args[1:]) if part.func == _PART else ()
        if not factor.is_number or len(along) not in (1, 2):
            raise _refused(
                text,
                f"has the term {term}",
                "constants times dif(expression, dim) or dif(expression, dim, dim)",
            )
        inner = factor * part.args[0]
        if len(along) == 1:
            fluxes[along[0]] = fluxes.get(along[0], sympy.S.Zero) - inner
        elif set(axes) & inner.xreplace({f: sympy.S.One for f in symbols}).free_symbols:
            raise _refused(text, f"has coordinates in {term}", "fields in second derivatives")
        else:
            second.append((along, compiled(inner.xreplace(symbols), place)))

    def program(node: sympy.Expr) -> Program:
        return compiled(node.xreplace(symbols), place)

    return Law(
        {axis: program(node) for axis, node in fluxes.items()},
        second,
        None if source == 0 else program(source),
        {
            axis: [compiled(node.xreplace(symbols).diff(s), place) for s in symbols.values()]
            for axis, node in fluxes.items()
        },
    )


def _refused(text: str, what: str, allowed: str) -> ConfigError:
    return ConfigError(f"{text!r} {what}", where=WHERE, allowed=allowed)
