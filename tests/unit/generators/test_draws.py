"""Random settings of all generators: what is 10 % off is refused or marked."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

pytest.importorskip("skfem", exc_type=ImportError)
BENCHMARK = Path(__file__).parents[3] / "benchmarks" / "generators" / "generator_draws.py"


@pytest.fixture(scope="module")
def draws():
    spec = importlib.util.spec_from_file_location("benchmark_generator_draws", BENCHMARK)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_a_few_draws_that_are_off_are_marked(draws):
    counts = draws.count([0, 1, 14, 15, 16, 33])
    assert counts["passed_10_percent_off_names"] == []
    assert counts["passed"] >= 4
    assert counts["marked"] >= 1


def test_the_true_error_of_what_is_off_is_seen(draws):
    """A sample that is not resolved counts if nothing marks it."""
    generator = draws.generators.get("gray_scott")(cells=16, spinup=0, frames=5, tolerance=1e9)
    sample = generator.sample({}, 0)
    assert not any("error" in text for text in sample.missed)
    assert draws.true_error(generator, sample, 0) > draws.OFF


@pytest.mark.slow
def test_two_hundred_draws_that_are_off_are_marked(draws):
    counts = draws.run()
    assert counts["draws"] == draws.DRAWS
    assert counts["passed_10_percent_off_names"] == []
