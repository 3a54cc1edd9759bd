from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from scitoolkit.superresolution.checking import check
from scitoolkit.superresolution.equations import PDE

NU, SPEED = 0.03, 0.5


@pytest.fixture(scope="module")
def waves():
    """Two fields of u_t + c u_x = nu u_xx, exact, as (t, x)."""
    t, x = np.linspace(0, 1, 41), 2 * np.pi * np.arange(64) / 64
    fields = {}
    for name, waves in (("u", (1, 2, 3)), ("v", (2, 4))):
        fields[name] = sum(
            np.exp(-NU * k**2 * t[:, None]) * np.cos(k * (x - SPEED * t[:, None]) + k)
            for k in waves
        )
    return xr.Dataset({n: (("t", "x"), f) for n, f in fields.items()}, {"t": t, "x": x})


def report(waves, **constants):
    pde = PDE.parse(
        {
            "first": "dif(u,t) + c*dif(u,x) - nu*dif(u,x,x)",
            "second": "dif(v,t) + c*dif(v,x) - nu*dif(v,x,x)",
        },
        fields=["u", "v"],
        dims=["t", "x"],
        constants=constants,
    )
    return check(pde, waves, periodic={"x": 2 * np.pi})


def test_right_constants_are_found_again_and_agree(waves):
    found = {c.name: c for c in report(waves, nu=NU, c=SPEED).constants}
    assert found["nu"].value == pytest.approx(NU, rel=1e-3)
    assert found["c"].value == pytest.approx(SPEED, rel=1e-3)
    assert found["nu"].agrees
    assert found["nu"].error < 0.01 * NU


def test_a_wrong_constant_is_named_in_every_equation_it_spoils(waves):
    found = report(waves, nu=10 * NU, c=SPEED)
    assert not found.satisfied
    assert {c.name: c.agrees for c in found.constants} == {"nu": False, "c": True}
    for equation in found.equations:
        assert "with nu = 0.03 +- " in equation.message
        assert "c =" not in equation.message


def test_the_fit_does_not_depend_on_where_it_starts(waves):
    near, far = (report(waves, nu=nu, c=SPEED).constants[0].value for nu in (NU, 50 * NU))
    assert near == pytest.approx(far, rel=1e-6)


def test_constants_that_cannot_be_told_apart_are_not_fitted(waves):
    pde = PDE.parse(
        "dif(u,t) + c*dif(u,x) - a*b*dif(u,x,x)",
        fields=["u"],
        dims=["t", "x"],
        constants={"a": NU, "b": 1.0, "c": SPEED},
    )
    found = check(pde, waves[["u"]], periodic={"x": 2 * np.pi})
    assert found.satisfied
    assert not found.constants
