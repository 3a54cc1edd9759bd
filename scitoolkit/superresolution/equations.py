"""Systems of partial differential equations, and the evaluation of their residuals.

Residuals are compiled from sympy expressions to array operations on numpy arrays or torch tensors;
they need only the derivatives that occur in the equations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.expressions import (
    Names,
    compiled,
    derivative_of,
    evaluate_constant,
    parse,
    sympy,
    unknowns,
)
from scitoolkit.ops.taylor import MultiIndex, Operator, operator

Key = tuple[str, Operator]
"""A field and the operator applied to it."""
Array = Any
"""numpy array or torch tensor."""


@dataclass(frozen=True)
class PDE:
    """Equations of fields over dims.

    Attributes:
        names: fields, dims, constants.
        texts: {name: equation as given}.
        expressions: {name: sympy expression that equals 0}.
    """

    names: Names
    texts: Mapping[str, str]
    expressions: Mapping[str, sympy.Expr]

    @classmethod
    def parse(
        cls,
        equations: Mapping[str, str] | Sequence[str] | str,
        *,
        fields: Sequence[str],
        dims: Sequence[str],
        constants: Mapping[str, float | str] | None = None,
        attributes: Mapping[str, float] | None = None,
    ) -> PDE:
        """Parse one equation, a list of equations or named equations.

        Args:
            equations: see `scitoolkit.core.expressions` for the grammar.
            fields: names of the unknowns.
            dims: names of the coordinates, 1 to 4, any order.
            constants: {name: number, or expression of `attributes` and previous constants}.
            attributes: {name: number} of the data file, for constants and equations.

        Raises:
            ConfigError: an unknown name, or text that is not an equation, with its position.

        Example:
            >>> pde = PDE.parse("dif(u,t) + u*dif(u,x) - nu*dif(u,x,x)", fields=["u"],
            ...                 dims=["t", "x"], constants={"nu": 0.1})
            >>> [key for _, key in pde.derivatives()]
            [(0, 0), (0, 1), (0, 2), (1, 0)]
        """
        if isinstance(equations, str):
            equations = [equations]
        if not isinstance(equations, Mapping):
            equations = {f"equation {n}": text for n, text in enumerate(equations, 1)}
        if not equations:
            raise ConfigError("no equation given", where="pde.equations")
        if not 1 <= len(dims) <= 4:
            raise ConfigError(f"{len(dims)} dims: {', '.join(dims)}", allowed="1 to 4")
        both = set(fields) & set(dims)
        if both:
            raise ConfigError(f"{', '.join(sorted(both))} is both a field and a dim", where="pde")
        constants_of = {k: v for k, v in (attributes or {}).items() if k not in (*fields, *dims)}
        for name, value in (constants or {}).items():
            if name in (*fields, *dims):
                raise ConfigError(f"{name} is a field or dim", where=f"pde.constants.{name}")
            constants_of[name] = evaluate_constant(value, constants_of, f"pde.constants.{name}")
        names = Names(tuple(fields), tuple(dims), constants_of)
        expressions = {
            name: sympy.expand(parse(text, names, f"pde.equations.{name}"))
            for name, text in equations.items()
        }
        for name, expression in expressions.items():
            if not expression.atoms(sympy.core.function.AppliedUndef):
                raise ConfigError(
                    f"{equations[name]!r} has no field in it",
                    where=f"pde.equations.{name}",
                    allowed=", ".join(fields),
                )
        return cls(names, dict(equations), expressions)

    def derivatives(self) -> list[tuple[str, MultiIndex]]:
        """Return the (field, multi-index) pairs in the equations, values included."""
        pairs = set()
        for expression in self.expressions.values():
            pairs |= {self._key(node) for node in unknowns(expression)}
        return sorted(pairs)

    def _key(self, node: sympy.Expr) -> tuple[str, MultiIndex]:
        return derivative_of(node, self.names.dims)

    @property
    def order(self) -> int:
        """Highest order of a derivative."""
        return max(sum(index) for _, index in self.derivatives())


class Residuals:
    """Residuals of a system of equations.

    Second and higher derivatives that occur in a single combination only, such as a Laplacian, are
    treated as one operator, which costs one derivative stream instead of several.

    Args:
        pde: the system.
        combine: whether to combine derivatives.

    Attributes:
        keys: the (field, operator) pairs that `evaluate` requires.

    Example:
        >>> pde = PDE.parse("dif(u,t) - 2*(dif(u,x,x) + dif(u,y,y))", fields=["u"],
        ...                 dims=["t", "x", "y"])
        >>> import numpy as np
        >>> residuals = Residuals(pde)
        >>> laplacian = operator({(0, 2, 0): 1.0, (0, 0, 2): 1.0})
        >>> ("u", laplacian) in residuals.keys
        True
        >>> values = {("u", operator((1, 0, 0))): np.array(5.0), ("u", laplacian): np.array(2.0)}
        >>> float(residuals.evaluate(values)["equation 1"])
        1.0
    """

    def __init__(self, pde: PDE, combine: bool = True) -> None:
        self.pde = pde
        self._symbols: dict[Key, sympy.Symbol] = {}
        expressions = {}
        for name, expression in pde.expressions.items():
            replaced = {
                node: self._symbol(pde._key(node)[0], operator(pde._key(node)[1]))
                for node in unknowns(expression)
            }
            expressions[name] = expression.xreplace(replaced)
        if combine:
            expressions = self._combined(expressions)
        used = set().union(*(e.free_symbols for e in expressions.values()))
        self._symbols = {k: s for k, s in self._symbols.items() if s in used}
        self.keys: list[Key] = sorted(self._symbols)
        self._place = {symbol: key for key, symbol in self._symbols.items()}
        self.expressions = expressions
        self._programs = {name: compiled(e, self._place) for name, e in expressions.items()}

    def operators(self) -> list[Operator]:
        """Return the distinct operators of all fields."""
        return sorted({op for _, op in self.keys})

    def _symbol(self, field: str, op: Operator) -> sympy.Symbol:
        return self._symbols.setdefault((field, op), sympy.Dummy(f"{field}_{len(self._symbols)}"))

    def _combined(self, expressions: dict[str, sympy.Expr]) -> dict[str, sympy.Expr]:
        for field in self.pde.names.fields:
            # Let s_1, s_2, ... be the higher derivatives of a field. If all equations contain them
            # in the same ratio (a matrix of coefficients of rank 1, such as nu (u_xx + u_yy) in
            # each), then sum_i (c_i / c_1) s_i is one operator, which costs one derivative stream.
            high = sorted(
                (key, s)
                for key, s in self._symbols.items()
                if key[0] == field and sum(key[1][0][0]) > 1
            )
            if len(high) < 2:
                continue
            rows = {
                name: [sympy.diff(e, symbol) for _, symbol in high]
                for name, e in expressions.items()
            }
            rows = {name: row for name, row in rows.items() if any(c != 0 for c in row)}
            # A coefficient that depends on fields or coordinates differs from point to point.
            if not all(c.is_number for row in rows.values() for c in row):
                continue
            lead = next(iter(rows.values()))
            if (
                any(c == 0 for c in lead)
                or sympy.Matrix(list(rows.values())).rank(iszerofunc=lambda v: abs(v) < 1e-12) > 1
            ):
                continue
            terms = {key[1][0][0]: float(c / lead[0]) for (key, _), c in zip(high, lead)}  # noqa: B905
            combined = self._symbol(field, operator(terms))
            for name, row in rows.items():
                rest = expressions[name].xreplace({s: sympy.Integer(0) for _, s in high})
                expressions[name] = rest + row[0] * combined
        return expressions

    def evaluate(
        self, values: Mapping[Key, Array], coordinates: Mapping[str, Array] | None = None
    ) -> dict[str, Array]:
        """Return the residual of each equation.

        Args:
            values: {key: array} for all `keys`, of shapes that broadcast.
            coordinates: {dim: array} if the equations use coordinates.
        """
        return {
            name: program(values, coordinates or {}) for name, program in self._programs.items()
        }

    def terms(
        self, values: Mapping[Key, Array], coordinates: Mapping[str, Array] | None = None
    ) -> dict[str, dict[str, Array]]:
        """Return the terms of each residual: {equation: {text of a term: array}}."""
        out = {}
        for name, expression in self.expressions.items():
            parts = sympy.Add.make_args(sympy.expand(expression))
            out[name] = {
                self._text(part): compiled(part, self._place)(values, coordinates or {})
                for part in parts
            }
        return out

    def _text(self, part: sympy.Expr) -> str:
        shown = {
            s: sympy.Symbol(key_text(key, self.pde.names.dims)) for s, key in self._place.items()
        }
        return str(part.xreplace(shown))


def key_text(key: Key, dims: Sequence[str]) -> str:
    """Return a (field, operator) pair as text.

    Example:
        >>> key_text(("u", operator({(2, 0): 1.0, (0, 2): 0.5})), ["x", "y"])
        '0.5*u_yy+u_xx'
    """
    field, op = key
    parts = []
    for index, coefficient in op:
        letters = "".join(d * k for d, k in zip(dims, index, strict=True))
        name = f"{field}_{letters}" if letters else field
        parts.append(name if coefficient == 1 else f"{coefficient:g}*{name}")
    return "+".join(parts)
