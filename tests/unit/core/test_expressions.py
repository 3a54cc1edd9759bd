"""Constants that are not finite numbers of double precision are refused."""

from __future__ import annotations

import pytest

from scitoolkit.core.errors import ConfigError

pytest.importorskip("sympy")

from scitoolkit.core.expressions import evaluate_constant


@pytest.mark.parametrize("text", ["1e400", "exp(1000)", "-1e300*1e20", "log(0)", "sqrt(-1)"])
def test_a_constant_that_is_not_finite_is_refused(text):
    with pytest.raises(ConfigError, match="not a finite number"):
        evaluate_constant(text, {}, "pde.constants.c")


def test_large_constants_are_numbers():
    assert evaluate_constant("1e300", {}, "c") == 1e300
    assert evaluate_constant("a^2", {"a": 1e10}, "c") == 1e20
