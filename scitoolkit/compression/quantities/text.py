"""Parser of quantities: `EXPRESSION [@ REGION]: MODE=VALUE`.

    sqrt(u^2 + v^2): abs=1e-2
    vorticity(u, v): rel=1e-3
    t @ y=0:32, x=10:20: abs=0.05
    mean(rho, y, x) @ z=8: pw_rel=1e-4

Expressions follow the grammar of `scitoolkit.core.expressions`; `dif(t, x)` is the derivative along
the dim x. `gradient(f)` is the magnitude of the gradient along all dims, `gradient(f, y, x)` along
those dims. The arguments of `divergence` and `vorticity` are the components along the last dim, the
last but one, and so on. `mean(expression)` averages over the region, `mean(expression, y, x)` along
these dims.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.expressions import Names, derivative_of, parse, sympy, unknowns

MODES = ("abs", "rel", "pw_rel")
_FORM = "EXPRESSION [@ DIM=BEGIN:END, ...]: MODE=VALUE"
_WHOLE = re.compile(r"^(?P<expression>[^@:]+?)(?:@(?P<region>.+?))?:\s*(?P<bound>[^:@]+)$")
_BOUND = re.compile(r"^(abs|rel|pw_rel)\s*=\s*(\S+)$")
_SPAN = re.compile(r"^([A-Za-z_]\w*)\s*=\s*(-?\d*)\s*(?:(:)\s*(-?\d*))?$")
_MEAN = "mean"


@dataclass(frozen=True)
class QuantityText:
    """Parts of the text of a quantity.

    Attributes:
        text: as written by the user.
        expression: in terms of the variables.
        region: dim -> slice of indices; other dims are unrestricted.
        mode: abs, rel (of the range of the quantity) or pw_rel.
        value: of the bound.
    """

    text: str
    expression: str
    region: Mapping[str, slice]
    mode: str
    value: float

    @classmethod
    def read(cls, text: str) -> QuantityText:
        """Parse a text.

        Raises:
            ConfigError: the text does not have this form, or the bound is invalid.

        Example:
            >>> QuantityText.read("sqrt(u^2+v^2) @ x=2:5: abs=1e-2").region
            {'x': slice(2, 5, None)}
        """
        whole = _WHOLE.match(text.strip())
        bound = _BOUND.match(whole["bound"].strip()) if whole else None
        if not whole or not bound:
            raise ConfigError(f"quantity {text!r}", allowed=_FORM, fix="sqrt(u^2 + v^2): abs=1e-2")
        region = dict(_span(part, text) for part in (whole["region"] or "").split(",") if part)
        try:
            value = float(bound[2])
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < 0 or (bound[1] == "pw_rel" and value >= 1):
            raise ConfigError(
                f"bound {bound[0]} of quantity {text!r}",
                allowed="a finite number >= 0, below 1 for pw_rel",
            )
        return cls(text.strip(), whole["expression"].strip(), region, bound[1], value)

    def parsed(
        self, fields: Sequence[str], dims: Sequence[str]
    ) -> tuple[sympy.Expr, tuple[str, ...] | None]:
        """Return the expression, and the dims to average it along (None: no average).

        Args:
            fields: names of the variables.
            dims: names of their dims.

        Raises:
            ConfigError: the expression is invalid or has no variable.
        """
        expression = parse(self.expression, _names(fields, dims), f"quantity {self.text!r}")
        averaged: tuple[str, ...] | None = None
        if expression.func.__name__ == _MEAN:
            averaged = tuple(str(d) for d in expression.args[1:]) or tuple(dims)
            expression = expression.args[0]
        if expression.atoms(sympy.Function(_MEAN)) or not unknowns(expression):
            raise ConfigError(
                f"quantity {self.text!r}",
                allowed="at least one variable, and mean(...) only as the outermost function",
            )
        return expression, averaged

    def variables(self, fields: Sequence[str], dims: Sequence[str]) -> list[str]:
        """Return the names of the variables that it depends on, sorted."""
        return sorted({derivative_of(n, dims)[0] for n in unknowns(self.parsed(fields, dims)[0])})


def _span(part: str, text: str) -> tuple[str, slice]:
    match = _SPAN.match(part.strip())
    if not match or not (match[2] or match[3]):
        raise ConfigError(
            f"region {part.strip()!r} of quantity {text!r}", allowed="DIM=BEGIN:END or DIM=INDEX"
        )
    begin = int(match[2]) if match[2] else None
    if not match[3]:
        assert begin is not None
        return match[1], slice(begin, begin + 1 if begin != -1 else None)
    return match[1], slice(begin, int(match[4]) if match[4] else None)


def _names(fields: Sequence[str], dims: Sequence[str]) -> Names:
    names = Names(tuple(fields), tuple(dims), {})
    symbols = [names.symbol(dim) for dim in dims]

    def along(along_dims: Sequence[sympy.Expr]) -> list[sympy.Symbol]:
        if foreign := [str(g) for g in along_dims if g not in symbols]:
            raise ValueError(f"{foreign[0]} is none of the dims {', '.join(dims)}")
        return list(along_dims)

    def gradient(f: sympy.Expr, *dims_of: sympy.Expr) -> sympy.Expr:
        return sympy.sqrt(sum(sympy.diff(f, d) ** 2 for d in along(dims_of) or symbols))

    def divergence(*components: sympy.Expr) -> sympy.Expr:
        _enough(components, dims)
        return sum(sympy.diff(f, d) for f, d in zip(components, symbols[::-1], strict=False))

    def vorticity(*components: sympy.Expr) -> sympy.Expr:
        _enough(components, dims)
        x, y, *z = symbols[::-1]
        u, v, *w = components
        flat = sympy.diff(v, x) - sympy.diff(u, y)
        if not w:
            return flat
        one = sympy.diff(w[0], y) - sympy.diff(v, z[0])
        two = sympy.diff(u, z[0]) - sympy.diff(w[0], x)
        return sympy.sqrt(one**2 + two**2 + flat**2)

    def mean(f: sympy.Expr, *dims_of: sympy.Expr) -> sympy.Expr:
        return sympy.Function(_MEAN)(f, *along(dims_of))

    functions = {
        "gradient": gradient,
        "divergence": divergence,
        "vorticity": vorticity,
        _MEAN: mean,
    }
    return Names(tuple(fields), tuple(dims), {}, functions)


def _enough(components: Sequence[sympy.Expr], dims: Sequence[str]) -> None:
    if len(components) not in (2, 3) or len(components) > len(dims):
        raise ValueError(
            f"{len(components)} components over {len(dims)} dims; 2 or 3 components, one per dim"
        )
