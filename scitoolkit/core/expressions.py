"""Parser of equations and quantities into sympy expressions; no input text is ever executed.

    equation   := sum [ "=" sum ]
    sum        := term { ("+" | "-") term }
    term       := factor { ("*" | "/") factor }
    factor     := ("+" | "-") factor | power
    power      := atom [ ("**" | "^") factor ]
    atom       := number | name | name "(" sum { "," sum } ")" | "(" sum ")"

`dif(f, x)` is the first derivative; `dif(f, x, x)`, `dif(f, x, 2)` and `dif(dif(f, x), x)` are the
second. The first argument may be any expression.
"""

from __future__ import annotations

import functools
import math
import operator
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np

from scitoolkit.core.errors import ConfigError, missing_extra
from scitoolkit.core.suggest import nearest_name

try:
    import sympy
except ImportError as error:  # pragma: no cover - depends on the installation
    raise missing_extra("sympy", "superresolution", "reading equations") from error

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "sin": sympy.sin,
    "cos": sympy.cos,
    "tan": sympy.tan,
    "exp": sympy.exp,
    "log": sympy.log,
    "sqrt": sympy.sqrt,
    "tanh": sympy.tanh,
    "sinh": sympy.sinh,
    "cosh": sympy.cosh,
    "abs": sympy.Abs,
}
_TOKEN = re.compile(
    r"\s*(?:(?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<symbol>\*\*|[-+*/^(),=]))"
)
# Limits of what a text may ask for: sympy evaluates powers of numbers and derivatives at once, so
# that a short line such as 9**9**9 would take all memory, and a deep one the interpreter's stack.
_MAX_DEPTH = 100
_MAX_ORDER = 6
_MAX_POWER = 20


@dataclass(frozen=True)
class Names:
    """Symbol table of an equation.

    Attributes:
        fields: unknown functions of all dims.
        dims: coordinates.
        constants: named numbers.
        functions: additional functions, or another `dif`; each is called with the expressions of
            its arguments and raises ValueError with the reason if it does not accept them.
    """

    fields: tuple[str, ...]
    dims: tuple[str, ...]
    constants: Mapping[str, float]
    functions: Mapping[str, Callable[..., sympy.Expr]] = field(default_factory=dict)

    def symbol(self, dim: str) -> sympy.Symbol:
        """Return the coordinate as a symbol."""
        return sympy.Symbol(dim, real=True)

    def function(self, field: str) -> sympy.Expr:
        """Return the field as a function of all dims."""
        return sympy.Function(field, real=True)(*(self.symbol(d) for d in self.dims))


def parse(text: str, names: Names, where: str = "equation") -> sympy.Expr:
    """Parse an equation and return its residual: left side minus right side.

    Args:
        text: an equation in the grammar of this module.
        names: fields, dims and constants.
        where: name of the text in messages, such as a configuration key.

    Raises:
        ConfigError: syntax error or unknown name, with a mark below its position in the text.

    Example:
        >>> parse("dif(u, t) + u*dif(u, x) = c*dif(u, x, x)", Names(("u",), ("t", "x"), {"c": 0.5}))
        u(t, x)*Derivative(u(t, x), x) + Derivative(u(t, x), t) - 0.5*Derivative(u(t, x), (x, 2))
    """
    return _Parser(text, names, where).equation()


def evaluate_constant(text: str | float, constants: Mapping[str, float], where: str) -> float:
    """Evaluate a constant expression such as `(rayleigh*prandtl)^-0.5`.

    Example:
        >>> evaluate_constant("(a*b)^-0.5", {"a": 4.0, "b": 4.0}, "pde.constants.P")
        0.25
    """
    if not isinstance(text, str):
        return float(text)
    value = parse(text, Names((), (), constants), where)
    # sympy holds numbers beyond the range of a double, such as exp(1000).
    if not (value.is_number and value.is_finite and value.is_real and math.isfinite(value)):
        raise ConfigError(f"{text!r} is {value}, not a finite number", where=where, fix="a number")
    return float(value)


class _Parser:
    def __init__(self, text: str, names: Names, where: str) -> None:
        if not isinstance(text, str) or not text.strip():
            raise ConfigError("the equation is empty", where=where, allowed="an expression")
        self.text, self.names, self.where = text, names, where
        self.tokens = list(self._tokens())
        self.place = self.depth = 0

    def _tokens(self) -> Iterator[tuple[str, str, int]]:
        at = 0
        end = len(self.text.rstrip())
        while at < end:
            match = _TOKEN.match(self.text, at)
            if match is None:
                start = at + len(self.text[at:]) - len(self.text[at:].lstrip())
                self.fail(f"unexpected {self.text[start]!r}", start)
            kind = str(match.lastgroup)
            yield kind, match.group(kind), match.start(kind)
            at = match.end()
        yield "end", "", end

    def fail(self, what: str, at: int | None = None, allowed: str = "", fix: str = "") -> NoReturn:
        """Raise a ConfigError that shows the position in the text."""
        if at is None:
            at = self.tokens[self.place][2]
        start = max(0, at - 60)
        shown = self.text[start : at + 40].replace("\n", " ")
        raise ConfigError(
            f"{what} at character {at + 1}\n    {shown}\n    {' ' * (at - start)}^\n",
            where=self.where,
            allowed=allowed,
            fix=fix,
        )

    def next(self) -> tuple[str, str, int]:
        token = self.tokens[self.place]
        self.place += 1
        return token

    def accept(self, *symbols: str) -> str | None:
        kind, text, _ = self.tokens[self.place]
        if kind == "symbol" and text in symbols:
            self.place += 1
            return text
        return None

    def expect(self, symbol: str) -> None:
        if not self.accept(symbol):
            self.fail(f"expected {symbol!r}, found {self.tokens[self.place][1] or 'the end'!r}")

    def equation(self) -> sympy.Expr:
        left = self.sum()
        if self.accept("="):
            left = left - self.sum()
        if self.tokens[self.place][0] != "end":
            self.fail(f"unexpected {self.tokens[self.place][1]!r}")
        return left.doit()

    def sum(self) -> sympy.Expr:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            self.fail(f"nested deeper than {_MAX_DEPTH} levels")
        value = self.term()
        while sign := self.accept("+", "-"):
            value = value + self.term() if sign == "+" else value - self.term()
        self.depth -= 1
        return value

    def term(self) -> sympy.Expr:
        value = self.factor()
        while sign := self.accept("*", "/"):
            at = self.tokens[self.place][2]
            right = self.factor()
            if sign == "/" and right.is_zero:
                self.fail("division by zero", at)
            value = value * right if sign == "*" else value / right
        return value

    def factor(self) -> sympy.Expr:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            self.fail(f"nested deeper than {_MAX_DEPTH} levels")
        if sign := self.accept("+", "-"):
            value = self.factor()
            value = -value if sign == "-" else value
        else:
            value = self.power()
        self.depth -= 1
        return value

    def power(self) -> sympy.Expr:
        base = self.atom()
        at = self.tokens[self.place][2]
        if not self.accept("**", "^"):
            return base
        # Not `atom`: -x**-2 and 2**3**2 group as in Python, to the right and with signs.
        exponent = self.factor()
        if not exponent.is_number or not exponent.is_real or abs(exponent) > _MAX_POWER:
            self.fail(f"exponent {exponent}", at, allowed=f"numbers up to {_MAX_POWER}")
        if base.is_zero and exponent.is_negative:
            self.fail("division by zero", at)
        return base**exponent

    def atom(self) -> sympy.Expr:
        kind, text, at = self.next()
        if kind == "number":
            return sympy.Integer(text) if text.isdigit() else sympy.Float(text)
        if kind == "name":
            if self.accept("("):
                return self.call(text, at)
            return self.name(text, at)
        if text == "(":
            value = self.sum()
            self.expect(")")
            return value
        self.fail(f"unexpected {text!r}" if text else "unexpected end of the text", at)
        raise AssertionError

    def name(self, text: str, at: int) -> sympy.Expr:
        names = self.names
        if text in names.fields:
            return names.function(text)
        if text in names.dims:
            return names.symbol(text)
        if text in names.constants:
            return sympy.Float(names.constants[text])
        if text == "pi":
            return sympy.pi
        names_allowed = [*names.fields, *names.dims, *names.constants]
        near = nearest_name(text, names_allowed)
        self.fail(
            f"unknown name {text!r}",
            at,
            allowed=_listing(names),
            fix=f"did you mean {near}?" if near else f"add constants.{text}",
        )
        raise AssertionError

    def call(self, name: str, at: int) -> sympy.Expr:
        if name in self.names.fields:
            self.fail(f"{name} is a field: write {name}, not {name}(...)", at)
        if name in self.names.functions:
            return self.further(name, at)
        if name == "dif":
            return self.derivative(at)
        if name not in FUNCTIONS:
            functions = ["dif", *FUNCTIONS, *self.names.functions]
            near = nearest_name(name, functions)
            self.fail(
                f"unknown function {name!r}",
                at,
                allowed=", ".join(functions),
                fix=f"did you mean {near}?" if near else "",
            )
        value = self.sum()
        if self.accept(","):
            self.fail(f"{name} takes one argument", at)
        self.expect(")")
        return FUNCTIONS[name](value)

    def further(self, name: str, at: int) -> sympy.Expr:
        arguments = [self.sum()]
        while self.accept(","):
            arguments.append(self.sum())
        self.expect(")")
        try:
            return self.names.functions[name](*arguments)
        except (TypeError, ValueError) as error:
            self.fail(f"{name}: {error}", at)
            raise AssertionError from None

    def derivative(self, at: int) -> sympy.Expr:
        inner = self.sum()
        dims: list[str] = []
        while self.accept(","):
            kind, text, place = self.next()
            if kind == "name" and text in self.names.dims:
                dims.append(text)
            elif kind == "number" and text.isdigit() and dims and 0 < int(text) <= _MAX_ORDER:
                dims += [dims[-1]] * (int(text) - 1)
            else:
                near = nearest_name(text, self.names.dims) if kind == "name" else None
                self.fail(
                    f"cannot differentiate with respect to {text!r}",
                    place,
                    allowed=", ".join(self.names.dims),
                    fix=f"did you mean {near}?" if near else "",
                )
        self.expect(")")
        if not dims or len(dims) > _MAX_ORDER:
            self.fail(
                f"dif of order {len(dims)}", at, allowed=f"dif(field, dim, ...) up to {_MAX_ORDER}"
            )
        return sympy.diff(inner, *(self.names.symbol(d) for d in dims))


def _listing(names: Names) -> str:
    parts: Sequence[tuple[str, Sequence[str]]] = (
        ("fields", names.fields),
        ("dims", names.dims),
        ("constants", list(names.constants)),
    )
    return "; ".join(f"{label} {', '.join(symbols)}" for label, symbols in parts if symbols)


def unknowns(expression: sympy.Expr) -> set[sympy.Expr]:
    """Return the fields and the field derivatives in an expression."""
    derivatives = expression.atoms(sympy.Derivative)
    # A field inside a derivative is no unknown by itself: u in dif(u, x) is not evaluated.
    stand_in = expression.xreplace({d: sympy.Dummy() for d in derivatives})
    return derivatives | stand_in.atoms(sympy.core.function.AppliedUndef)


def derivative_of(node: sympy.Expr, dims: Sequence[str]) -> tuple[str, tuple[int, ...]]:
    """Return the field name of a node from `unknowns` and its derivative order along each dim."""
    orders = dict.fromkeys(dims, 0)
    if isinstance(node, sympy.Derivative):
        for symbol, count in node.variable_count:
            orders[str(symbol)] += int(count)
        node = node.expr
    return node.func.__name__, tuple(orders.values())


Program = Callable[[Mapping[Any, Any], Mapping[str, Any]], Any]
"""Function of (values by key, coordinates by name); values are numpy arrays, torch tensors or
numbers."""


def compiled(node: sympy.Expr, place: Mapping[sympy.Symbol, Any]) -> Program:
    """Compile an expression into a Python function of arrays.

    Args:
        node: expression of numbers, symbols, sums, products, powers and one-argument functions.
        place: symbol -> key of its values; other symbols are names of coordinates.

    Example:
        >>> x = sympy.Symbol("x")
        >>> compiled(x**2 + 1, {x: "u"})({"u": 3.0}, {})
        10.0
    """
    if node in place:
        key = place[node]
        return lambda values, coordinates: values[key]
    if node.is_Symbol:
        name = str(node)
        return lambda values, coordinates: coordinates[name]
    if node.is_number:
        number = float(node)
        return lambda values, coordinates: number
    inner = [compiled(a, place) for a in node.args]
    if node.is_Add:
        return lambda v, c: functools.reduce(operator.add, [f(v, c) for f in inner])
    if node.is_Mul:
        return lambda v, c: functools.reduce(operator.mul, [f(v, c) for f in inner])
    if node.is_Pow:
        return lambda v, c: inner[0](v, c) ** inner[1](v, c)
    function = type(node).__name__.lower()
    return lambda v, c: _apply(function, inner[0](v, c))


def _apply(function: str, value: Any) -> Any:
    if type(value).__module__.partition(".")[0] == "torch":
        import torch

        return getattr(torch, function)(value)
    if isinstance(value, float):
        return getattr(math, "fabs" if function == "abs" else function)(value)
    return getattr(np, function)(value)
