"""Values that are expected to be the best ones."""

from __future__ import annotations

import json
import math
import random
import statistics

import numpy as np
import pytest

from scitoolkit.core.config import ConfigProblems
from scitoolkit.core.errors import ConfigError
from scitoolkit.search import (
    AgingEvolution,
    BayesianSearch,
    OptunaSearch,
    RandomSearch,
    Search,
    Space,
    SuccessiveHalving,
    choice,
    integer,
    real,
)
from scitoolkit.search.declarations import read_parameter
from scitoolkit.search.strategies.gaussian_process.embedding import Embedding
from scitoolkit.search.strategies.gaussian_process.priors import Priors, exponent

KINDS = {
    "real": real(-2.0, 6.0, prior=1.0, spread=0.1),
    "logarithmic real": real(1e-6, 1.0, log=True, prior=1e-2, spread=0.1),
    "real at a bound": real(0.0, 1.0, prior=0.0, spread=0.1),
    "integer": integer(10, 50, prior=20, spread=0.1),
    "logarithmic integer": integer(1, 4096, log=True, prior=64, spread=0.1),
    "grid": real(0.0, 1.0, step=0.05, prior=0.75, spread=0.1),
    "numpy": real(np.float32(0), 1, prior=np.float32(0.25), spread=np.float64(0.1)),
    "names": choice("a", "b", "c", "d", prior="c"),
    "numbers": choice(1, 2, 4, 8, prior=np.int64(4)),
    "false": choice(True, False, prior=False),
}


@pytest.mark.parametrize("kind", list(KINDS))
def test_samples_are_near_the_expected_value_and_reach_everything(kind):
    parameter = KINDS[kind]
    assert read_parameter("p", json.loads(json.dumps(parameter.describe()))) == parameter
    rng = random.Random(0)
    codes = [parameter.sample(rng) for _ in range(3000)]
    if kind in ("names", "numbers", "false"):
        share = codes.count(parameter.code(parameter.prior)) / len(codes)
        assert share == pytest.approx(0.5 + 0.5 / parameter.levels, abs=0.05)
        assert set(codes) == set(range(parameter.levels))
        return
    places = [parameter.unit(parameter.value(code)) for code in codes]
    centre = parameter.unit(parameter.prior)
    near = sum(abs(p - centre) <= 0.2 for p in places) / len(places)
    assert near > 0.75 * 0.9
    assert max(abs(p - centre) for p in places) > 0.45
    if kind != "real at a bound":
        assert statistics.median(places) == pytest.approx(centre, abs=0.06)


@pytest.mark.parametrize("kind", list(KINDS))
def test_the_start_design_holds_the_expected_values(kind):
    space = {"p": KINDS[kind], "q": real(0, 1)}
    history = Search(space, lambda c: c["q"]).run(trials=8)
    first = history.done[0].configuration["p"]
    prior = KINDS[kind].prior
    assert first == (prior if isinstance(prior, str) else pytest.approx(prior, rel=1e-6, abs=1e-6))
    assert len({t.configuration["q"] for t in history.done}) == 8


def loss(c):
    rate = (math.log10(c["rate"]) + 3) ** 2
    return rate + (c["width"] - 40) ** 2 / 400 + (0.0 if c["kind"] == "b" else 0.5)


PLAIN = {
    "rate": real(1e-9, 1.0, log=True),
    "width": integer(1, 200),
    "kind": choice("a", "b", "c", "d", "e"),
}


def expecting(rate, width, kind):
    return {
        "rate": real(1e-9, 1.0, log=True, prior=rate, spread=0.1),
        "width": integer(1, 200, prior=width, spread=0.1),
        "kind": choice("a", "b", "c", "d", "e", prior=kind),
    }


@pytest.mark.parametrize("strategy", [RandomSearch, lambda: AgingEvolution(10, 4), None])
def test_a_right_expectation_helps_and_a_wrong_one_does_not_bind(strategy):
    def median(space, trials, seeds=5):
        runs = [
            Search(space, loss, seed=seed, strategy=strategy and strategy()).run(trials=trials)
            for seed in range(seeds)
        ]
        return statistics.median(run.best.values[0] for run in runs)

    assert median(expecting(2e-3, 50, "b"), 10) < median(PLAIN, 10)
    if strategy is None:
        assert median(expecting(1e-8, 180, "e"), 45, seeds=2) < 1e-2


def test_slopes_are_the_derivatives_of_the_logarithm():
    space = Space(
        {
            "on": choice("a", "b", prior="b"),
            "x": real(0, 1, prior=0.2, spread=0.3),
            "y": real(1e-3, 1, log=True, prior=0.1, spread=0.05),
            "z": real(0, 1),
            "w": real(0, 1, prior=0.5, when={"on": ["b"]}),
        }
    )
    embedding = Embedding(space)
    priors = Priors(embedding)
    for code, at in ((1, np.array([1, 2, 3, 4])), (0, np.array([1, 2, 3]))):
        row = embedding.rows([(code, 0.6, 0.2, 0.4, 0.7 if code else None)])
        slopes = priors.slopes(row[0, at], at)
        for k, j in enumerate(at):
            step = np.zeros_like(row)
            step[0, j] = 1e-6
            high, low = priors.log_density(row + step), priors.log_density(row - step)
            assert slopes[k] == pytest.approx((high - low)[0] / 2e-6, abs=1e-5)
    assert exponent(10) == 1.0 > exponent(100)


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: real(0, 1, prior=2.0), "prior 2.0 is not in"),
        (lambda: real(0, 1, prior=math.nan), "prior nan"),
        (lambda: integer(0, 5, prior=2.5), "prior 2.5"),
        (lambda: real(0, 1, step=0.25, prior=0.3), "prior 0.3"),
        (lambda: choice("a", prior="b"), "prior 'b' is none of"),
        (lambda: real(0, 1, prior=0.5, spread=0), "spread 0"),
        (lambda: real(0, 1, prior=0.5, spread=math.nan), "spread nan"),
        (lambda: {"values": ["a"], "prior": "z"}, "prior 'z'"),
        (lambda: {"low": 0.0, "high": 1.0, "prior": 7}, "prior 7"),
    ],
)
def test_expectations_outside_the_range_are_refused(made, said):
    with pytest.raises(ConfigProblems, match=said):
        Space({"p": made()})


@pytest.mark.parametrize("strategy", [OptunaSearch, BayesianSearch])
def test_strategies_without_priors_refuse_them_by_name(strategy):
    space = {"q": real(0, 1), "p": real(0, 1, prior=0.5)}
    for made in (strategy(), SuccessiveHalving(strategy(), 1, 9)):
        with pytest.raises(ConfigError, match=r"space\.p\.prior.*uses no priors"):
            Search(space, lambda c: c["p"], strategy=made).run(trials=2)
