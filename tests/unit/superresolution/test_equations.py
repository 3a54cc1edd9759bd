"""Text to residuals, against sympy's exact derivatives; what the grammar refuses."""

from __future__ import annotations

import numpy as np
import pytest
import sympy
import torch

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.expressions import Names, evaluate_constant, parse
from scitoolkit.ops import taylor
from scitoolkit.superresolution.equations import PDE, Residuals, key_text

T, X, Y, Z = sympy.symbols("t x y z", real=True)
SYSTEMS = {
    "burgers": (
        ["t", "x"],
        {"u": sympy.sin(X - T) * sympy.exp(-T)},
        {"burgers": "dif(u,t) + u*dif(u,x) = nu*dif(u,x,x)"},
        {"nu": 0.01},
    ),
    "gray_scott": (
        ["t", "x", "y"],
        {"a": sympy.cos(X) * sympy.sin(Y) + T, "b": sympy.exp(-X * X) * Y + T * T},
        {
            "a": "dif(a,t) = Da*(dif(a,x,x) + dif(a,y,2)) - a*b^2 + f*(1 - a)",
            "b": "dif(b,t) - Db*(dif(b,x,x) + dif(b,y,y)) - a*b**2 + (f + k)*b",
        },
        {"Da": 0.16, "Db": 0.08, "f": 0.035, "k": 0.065},
    ),
    "kdv": (
        ["t", "x"],
        {"u": 2 / sympy.cosh(X - 4 * T) ** 2},
        {"kdv": "dif(u,t) + 6*u*dif(u,x) + dif(u,x,x,x)"},
        {},
    ),
    "mixed": (
        ["x", "y"],
        {"u": sympy.sin(X * Y) * X},
        {"mixed": "dif(u*dif(u,x),y) + sin(x)*u"},
        {},
    ),
    "navier_stokes_3d": (
        ["t", "x", "y", "z"],
        {
            "u": sympy.sin(X) * sympy.cos(Y) * sympy.cos(Z) * sympy.exp(-T),
            "v": -sympy.cos(X) * sympy.sin(Y) * sympy.cos(Z) * sympy.exp(-T),
            "w": X * Y * T,
            "p": sympy.cos(2 * X) * Z,
        },
        {
            "continuity": "dif(u,x) + dif(v,y) + dif(w,z)",
            "x": "dif(u,t) + u*dif(u,x) + v*dif(u,y) + w*dif(u,z) = -dif(p,x)"
            " + nu*(dif(u,x,x) + dif(u,y,y) + dif(u,z,z))",
            "z": "dif(w,t) + u*dif(w,x) + v*dif(w,y) + w*dif(w,z) = -dif(p,z)"
            " + nu*(dif(w,x,x) + dif(w,y,y) + dif(w,z,z))",
        },
        {"nu": 0.1},
    ),
}


def exact(field, index, dims):
    for dim, order in zip(dims, index, strict=True):
        if order:
            field = sympy.diff(field, sympy.Symbol(dim, real=True), order)
    return field


@pytest.mark.parametrize("combine", [True, False])
@pytest.mark.parametrize("name", SYSTEMS)
def test_residuals_of_analytic_fields(name, combine):
    dims, fields, texts, constants = SYSTEMS[name]
    pde = PDE.parse(texts, fields=list(fields), dims=dims, constants=constants)
    residuals = Residuals(pde, combine=combine)
    symbols = [sympy.Symbol(d, real=True) for d in dims]
    points = np.random.default_rng(0).uniform(0.3, 1.2, (len(dims), 20))

    def number(expression):
        return np.broadcast_to(sympy.lambdify(symbols, expression)(*points), 20)

    values = {
        (field, op): sum(c * number(exact(fields[field], i, dims)) for i, c in op)
        for field, op in residuals.keys
    }
    coordinates = dict(zip(dims, points, strict=True))
    found = residuals.evaluate(values, coordinates)
    as_tensors = residuals.evaluate(
        {k: torch.from_numpy(np.array(v)) for k, v in values.items()},
        {k: torch.from_numpy(v) for k, v in coordinates.items()},
    )
    for equation, text in texts.items():
        left, _, right = text.replace("^", "**").partition("=")
        scope = {
            **fields,
            **constants,
            **dict(zip(dims, symbols, strict=True)),
            "sin": sympy.sin,
            "dif": _dif,
        }
        wanted = number(eval(left, scope) - eval(right or "0", scope))
        np.testing.assert_allclose(found[equation], wanted, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(as_tensors[equation].numpy(), wanted, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("name", SYSTEMS)
def test_text_to_residual_by_the_models_own_derivatives(name):
    """A network of one layer of sines is an analytic field: sympy differentiates the same."""
    dims, fields, texts, constants = SYSTEMS[name]
    pde = PDE.parse(texts, fields=list(fields), dims=dims, constants=constants)
    residuals = Residuals(pde)
    plan = taylor.make_plan(len(dims), residuals.operators())
    rng = np.random.default_rng(1)
    points = rng.uniform(-1, 1, (20, len(dims)))
    inner, shift = rng.normal(size=(7, len(dims))), rng.normal(size=7)
    outer = rng.normal(size=(len(fields), 7))
    layers = [torch.from_numpy(a) for a in (inner, shift, outer)]
    hidden = taylor.linear(taylor.seed(torch.from_numpy(points), plan), layers[0], layers[1])
    streams = taylor.linear(taylor.activation(hidden, "sin", plan), layers[2])
    values = {k: streams[plan.index(k[1]), :, list(fields).index(k[0])] for k in residuals.keys}
    coordinates = dict(zip(dims, torch.from_numpy(points).T, strict=True))
    found = residuals.evaluate(values, coordinates)

    symbols = [sympy.Symbol(d, real=True) for d in dims]
    waves = [
        sympy.sin(sum(w * s for w, s in zip(row, symbols, strict=True)) + b)
        for row, b in zip(inner, shift, strict=True)
    ]
    own = {
        f: sum(c * w for c, w in zip(row, waves, strict=True))
        for f, row in zip(fields, outer, strict=True)
    }
    for equation, text in texts.items():
        left, _, right = text.replace("^", "**").partition("=")
        scope = {
            **own,
            **constants,
            **dict(zip(dims, symbols, strict=True)),
            "sin": sympy.sin,
            "dif": _dif,
        }
        expression = eval(left, scope) - eval(right or "0", scope)
        wanted = sympy.lambdify(symbols, expression)(*points.T)
        np.testing.assert_allclose(found[equation].numpy(), wanted, rtol=1e-9, atol=1e-9)


def _dif(expression, *by):
    by = [by[0]] * by[1] if len(by) == 2 and isinstance(by[1], int) else by
    return sympy.diff(expression, *by)


def test_only_the_derivatives_in_use_and_laplacians_as_one():
    dims, fields, texts, constants = SYSTEMS["gray_scott"]
    pde = PDE.parse(texts, fields=list(fields), dims=dims, constants=constants)
    assert [key_text(k, dims) for k in Residuals(pde).keys] == [
        "a",
        "a_yy+a_xx",
        "a_t",
        "b",
        "b_yy+b_xx",
        "b_t",
    ]
    assert pde.order == 2


def test_second_derivatives_with_other_ratios_stay_apart():
    pde = PDE.parse(
        ["dif(u,x,x) + dif(u,y,y)", "dif(u,x,x) + 2*dif(u,y,y)"], fields=["u"], dims=["x", "y"]
    )
    assert len(Residuals(pde).keys) == 2
    variable = PDE.parse("u*dif(u,x,x) + dif(u,y,y)", fields=["u"], dims=["x", "y"])
    assert {op for _, op in Residuals(variable).keys} == {
        taylor.operator(i) for i in [(0, 0), (2, 0), (0, 2)]
    }


@pytest.mark.parametrize(
    ("text", "said", "column"),
    [
        ("dif(u,y)", "cannot differentiate with respect to 'y'", 7),
        ("dif(u,x) + q", "unknown name 'q'", 12),
        ("u + * 3", "unexpected '*'", 5),
        ("dif(u,x", "expected ')'", 8),
        ("dif(u)", "dif of order 0", 1),
        ("u(x)", "u is a field", 1),
        ("sn(u)", "unknown function 'sn'", 1),
        ("u/0", "division by zero", 3),
        ("u**u", "exponent", 2),
        ("u**999", "exponent", 2),
        ("u = u = u", "unexpected '='", 7),
        ("u @ u", "unexpected '@'", 3),
        ("__import__('os').system('x')", "unexpected", 12),
        ("u.__class__", "unexpected '.'", 2),
        ("(lambda: u)()", "unexpected ':'", 8),
        ("(" * 200 + "u" + ")" * 200, "nested deeper", None),
        ("dif(u,x,x,x,x,x,x,x)", "dif of order 7", 1),
    ],
)
def test_errors_point_into_the_text(text, said, column):
    with pytest.raises(ConfigError) as caught:
        PDE.parse({"e": text}, fields=["u"], dims=["t", "x"])
    message = str(caught.value)
    assert said in message
    assert "pde.equations.e" in message
    if column is not None:
        assert f"at character {column}" in message
        lines = message.splitlines()
        mark = next(i for i, line in enumerate(lines) if line.strip() == "^")
        assert lines[mark].index("^") - 4 == column - 1


def test_near_names_are_proposed():
    with pytest.raises(ConfigError, match="did you mean rayleigh"):
        parse("rayleihg*u", Names(("u",), ("x",), {"rayleigh": 1e6}))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"equations": {}}, "no equation"),
        ({"equations": {"a": ""}}, "empty"),
        ({"equations": {"a": "1 + x"}}, "no field"),
        ({"dims": ["t", "x", "y", "z", "s"]}, "5 dims"),
        ({"dims": ["u", "x"]}, "both a field and a dim"),
        ({"constants": {"u": 1.0}}, "is a field"),
        ({"constants": {"c": "sqrt(0-1)"}}, "not a finite number"),
    ],
)
def test_systems_that_are_refused(changes, said):
    arguments = {"equations": {"a": "dif(u,x)"}, "fields": ["u"], "dims": ["t", "x"]} | changes
    equations = arguments.pop("equations")
    with pytest.raises(ConfigError, match=said):
        PDE.parse(equations, **arguments)


def test_constants_of_constants_and_attributes():
    known = {"rayleigh": 1e6, "prandtl": 1.0}
    assert evaluate_constant("(rayleigh*prandtl)^-0.5", known, "P") == pytest.approx(1e-3)
    pde = PDE.parse(
        "dif(u,x) - Q*u",
        fields=["u"],
        dims=["x"],
        constants={"P": "rayleigh^-0.5", "Q": "2*P"},
        attributes=known,
    )
    assert pde.names.constants["Q"] == pytest.approx(2e-3)
