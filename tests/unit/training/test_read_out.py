"""Block coordinate descent with unrolled steps: equal iterates, fewer messages."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.training.read_out import fit_read_out


def problem(samples=120, features=30, targets=2):
    generator = np.random.default_rng(1)
    a = generator.standard_normal((samples, features)) * np.logspace(0, -2, features)
    return a, a @ generator.standard_normal((features, targets))


@pytest.mark.parametrize("unrolled", [3, 4, 16, 64])
def test_unrolled_steps_are_the_steps_one_by_one(unrolled):
    a, y = problem()
    one = fit_read_out(a, y, 1e-3, steps=64, block=8)
    some = fit_read_out(a, y, 1e-3, steps=64, block=8, unrolled=unrolled)
    assert np.linalg.norm(some.weights - one.weights) <= 1e-10 * np.linalg.norm(one.weights)
    assert (one.messages, some.messages) == (64, -(-64 // unrolled))


def test_it_converges_to_the_normal_equations():
    a, y = problem(features=12)
    found = fit_read_out(a, y, 1e-2, steps=2000, block=4, unrolled=8)
    exact = np.linalg.solve(a.T @ a + 1e-2 * np.eye(12), a.T @ y)
    np.testing.assert_allclose(found.weights, exact, rtol=1e-6, atol=1e-8)


def test_ranks_that_share_the_samples_find_the_weights_of_one():
    a, y = problem()
    barrier, posted = threading.Barrier(2, timeout=30), [np.zeros(0), np.zeros(0)]

    def fitted(rank):
        def total(sums):
            posted[rank] = sums
            barrier.wait()
            out = posted[0] + posted[1]
            barrier.wait()
            return out

        rows = slice(0, 50) if rank == 0 else slice(50, None)
        return fit_read_out(a[rows], y[rows], 1e-3, steps=40, unrolled=4, total=total)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(fitted, range(2))
    assert np.array_equal(first.weights, second.weights)
    one = fit_read_out(a, y, 1e-3, steps=40)
    np.testing.assert_allclose(first.weights, one.weights, rtol=1e-9, atol=1e-12)
    assert first.messages == 10
    assert first.numbers == 10 * (32 * 32 + 32 * 2)


def test_bad_input_is_named():
    a, y = problem()
    with pytest.raises(DataError, match="do not fit"):
        fit_read_out(a, y[:-1], 1.0)
    with pytest.raises(DataError, match="targets hold NaN"):
        fit_read_out(a, np.where(y > 1, np.nan, y), 1.0)
    for keys in ({"penalty": 0.0}, {"block": 31}, {"unrolled": 0}):
        with pytest.raises(ConfigError):
            fit_read_out(a, y, **{"penalty": 1.0, **keys})


def test_the_example_of_the_page_runs(capsys):
    page = Path(__file__).parents[3] / "docs" / "how-to" / "read-outs-with-few-messages.md"
    code = page.read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    exec(compile(code, str(page), "exec"), {"__name__": "example"})
    assert capsys.readouterr().out == "(40, 2) 50\n"


def test_features_of_narrow_integers_are_summed_in_float64():
    a = np.random.default_rng(0).integers(-100, 100, (50, 6)).astype(np.int8)
    y = a.astype(np.float64) @ np.arange(6.0)[:, None]
    found = fit_read_out(a, y, 1e-9, block=3, steps=60, unrolled=5)
    np.testing.assert_allclose(found.weights[:, 0], np.arange(6.0), atol=1e-6)
