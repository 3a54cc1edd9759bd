from __future__ import annotations

import math
import random

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from scitoolkit.search import (
    AgingEvolution,
    GaussianProcessSearch,
    Objective,
    RandomSearch,
    Search,
    Simulated,
    Space,
    SuccessiveHalving,
    chain,
    choice,
    integer,
    load_history,
    real,
)
from scitoolkit.search.strategies.gaussian_process import strategy as module
from scitoolkit.search.strategies.gaussian_process.acquisition import (
    log_improvement,
    region_side,
)
from scitoolkit.search.strategies.gaussian_process.embedding import Embedding
from scitoolkit.search.strategies.gaussian_process.process import (
    GaussianProcess,
    NegativeLogPosterior,
)

MIXED = Space(
    {
        "cells": chain(3, [0, 16, 32], reach=2),
        "head": ["last", "all", "decoder"],
        "forcing": choice(0.0, 0.5, 1.0, when={"head": ["decoder"]}),
        "layers": integer(1, 40, log=True),
        "width": integer(8, 64, step=8, when={"layers": [2, 3, 4, 5, 6]}),
        "lr": real(1e-4, 1e-1, log=True),
        "share": real(0, 1, step=0.125),
        "slope": real(-3, 7, when={"head": ["decoder", "all"]}),
        "sizes": [64, 16, 32, 128],
        "bias": [True, False],
        "one": [3],
    }
)


def data(seed=0, count=24):
    rng = np.random.default_rng(seed)
    features = rng.random((count, 4))
    features[:, 3] = rng.integers(0, 3, count)
    losses = np.sin(5 * features[:, 0]) + 0.4 * features[:, 3] + features[:, 1] ** 2
    return features, np.array([False, False, False, True]), losses - losses.mean()


def differences(function, x, step=1e-6):
    return np.array(
        [(function(x + step * e) - function(x - step * e)) / (2 * step) for e in np.eye(len(x))]
    )


def test_the_gradient_of_the_posterior_is_that_of_its_value():
    objective = NegativeLogPosterior(*data())
    x = np.array([1.0, 0.3, -0.5, 0.8, 0.2, -4.0])
    np.testing.assert_allclose(
        objective(x)[1], differences(lambda v: objective(v)[0], x), rtol=1e-6, atol=1e-6
    )


def test_the_slopes_of_a_prediction_are_those_of_its_values():
    process = GaussianProcess(*data())
    point, at = np.array([0.31, 0.52, 0.77, 1.0]), np.arange(3)
    _, _, by_mean, by_deviation = process.slopes(point, at)
    for which, slope in ((0, by_mean), (1, by_deviation)):
        found = differences(lambda v, w=which: process.posterior(v[None])[w][0], point)[:3]
        np.testing.assert_allclose(slope, found, rtol=1e-5, atol=1e-6)


def test_log_improvement_is_continuous_and_exact():
    from scipy.stats import norm

    z = np.linspace(-6, 4, 41)
    np.testing.assert_allclose(log_improvement(z), np.log(norm.pdf(z) + z * norm.cdf(z)), rtol=1e-7)
    for edge in (-1.0, -100.0):
        below, above = log_improvement(np.array([edge - 1e-9, edge + 1e-9]))
        assert below == pytest.approx(above, rel=1e-6)


def test_rows_and_codes_are_inverse_and_lifted_points_are_configurations():
    embedding, rng = Embedding(MIXED), random.Random(0)
    codes = [MIXED.sample_codes(rng) for _ in range(200)]
    rows = embedding.rows(codes)
    for one, row in zip(codes, rows, strict=True):
        for code, kept in zip(one, embedding.codes(row), strict=True):
            assert kept == (code if code is None else pytest.approx(code, rel=1e-12))
    lifted = embedding.lift(np.random.default_rng(0).random((200, len(embedding.axes))))
    for row in lifted:
        back = embedding.codes(row)
        assert MIXED.encode(MIXED.decode(back)) == back
    on = ~np.isnan(lifted)
    np.testing.assert_allclose(
        embedding.lift(np.where(on, lifted, 0.5))[on & embedding.ordered],
        lifted[on & embedding.ordered],
    )
    assert {len(embedding.features(lifted)[0])} == {len(embedding.category)}


def test_a_variable_that_is_off_does_not_count():
    embedding = Embedding(Space({"head": ["a", "b"], "x": real(0, 1, when={"head": ["b"]})}))
    off, on, far = embedding.features(embedding.rows([(0, None), (1, 0.5), (1, 1.0)]))
    assert off[1] == on[1] == 0.0
    assert far[1] == 0.5
    assert off[2] != on[2] == far[2]


def bowl(configuration):
    x, y, k = configuration["x"], configuration["y"], configuration["k"]
    return (
        (x - 0.31) ** 2
        + (math.log10(y) + 2.2) ** 2
        + 0.1 * abs(k - 7)
        + (0.3 if configuration["kind"] == "b" else 0.0)
    )


BOWL = Space(
    {"x": real(-1, 1), "y": real(1e-4, 1, log=True), "k": integer(1, 20), "kind": ["a", "b", "c"]}
)


def test_forty_trials_come_near_the_optimum_of_a_mixed_space():
    ours = [Search(BOWL, bowl, seed=s).run(trials=40).best.values[0] for s in range(3)]
    sampled = [
        Search(BOWL, bowl, seed=s, strategy=RandomSearch()).run(trials=40).best.values[0]
        for s in range(3)
    ]
    assert max(ours) < 0.02
    assert min(sampled) > 0.05


def test_the_optimum_of_a_conditional_branch_is_found():
    space = Space(
        {
            "head": ["a", "b", "c"],
            "rate": real(0, 10, when={"head": ["c"]}),
            "depth": integer(1, 9, when={"head": ["a"]}),
        }
    )

    def evaluate(configuration):
        if configuration["head"] == "c":
            return 0.5 * (configuration["rate"] - 7.3) ** 2
        return 1.0 + 0.1 * configuration.get("depth", 3)

    best = Search(space, evaluate).run(trials=40).best
    assert best.configuration["head"] == "c"
    assert best.values[0] < 0.01


def test_it_is_the_default_and_evolution_follows():
    search = Search(BOWL, bowl)
    assert search.strategy.describe() == {"name": "gaussian_process", "start": 8, "until": 200}
    history = Search(BOWL, bowl, strategy=GaussianProcessSearch(6, 20)).run(trials=30)
    origins = [t.origin for t in history.done]
    assert origins[:6] == ["start"] * 6
    assert set(origins[6:20]) == {"global", "region"}
    assert set(origins[20:]) == {"mutation"}


def test_the_number_of_threads_does_not_change_a_proposal():
    search = Search(BOWL, bowl)
    search.run(trials=30)
    proposals = []
    for threads in (1, 2):
        with threadpool_limits(threads):
            proposals.append(search.strategy.ask())
    assert proposals[0] == proposals[1]


def test_a_replay_fits_nothing_and_leads_to_the_same_proposal(tmp_path, monkeypatch):
    search = Search(BOWL, bowl, directory=tmp_path)
    search.run(trials=25)
    expected = search.strategy.ask()
    again = Search(BOWL, bowl, directory=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(module, "GaussianProcess", None)
        again.run(trials=25, resume=True)
    assert again.strategy.ask() == expected
    assert len(load_history(tmp_path).done) == 25


def test_workers_are_given_different_points():
    together = Simulated(bowl, 6, lambda t: 1.0, charge=False)
    history = Search(BOWL, bowl).run(trials=36, workers=together)
    assert history.duplicates() == 0
    rows = Embedding(BOWL).rows([t.codes for t in history.done])
    assert (np.abs(rows[:, None] - rows[None]).max(-1) + np.eye(36)).min() > 9e-7


def test_budgets_are_comparable_after_a_shift():
    """Losses fall with the budget: without a shift, what was promoted would always look best."""
    strategy = SuccessiveHalving(GaussianProcessSearch(start=6), 1, 9)
    search = Search(BOWL, lambda c, trial: bowl(c) + 10 / trial.budget, strategy=strategy)
    history = search.run(trials=24)
    base = strategy.base
    numbers = list(base.results)
    losses = dict(
        zip(numbers, base.losses(numbers, np.random.default_rng(0)) - 10 / 9, strict=True)
    )
    for trial in history.done:
        assert losses[trial.id] == pytest.approx(bowl(trial.configuration), abs=1e-9)


def test_losses_of_any_size_are_survived():
    def wild(configuration):
        return bowl(configuration) * 10.0 ** (300 * (configuration["x"] > 0.5))

    assert Search(BOWL, wild).run(trials=30).best.values[0] < 0.3
    flat = Search(BOWL, lambda c: 1.0).run(trials=20)
    assert flat.duplicates() == 0


def test_the_region_grows_and_shrinks_by_the_log_alone():
    falling = np.arange(20.0, 0.0, -1)
    assert region_side(falling, 4, 8) == 1.6
    assert region_side(np.ones(8 + 4), 4, 8) == 0.4


@pytest.mark.parametrize("strategy", [GaussianProcessSearch, lambda: AgingEvolution(10, 5)])
def test_a_limit_that_only_the_trial_tells_is_learnt(strategy):
    """The optimum without the limit lies in what it forbids; with it, it is 0.32."""

    def evaluate(c):
        return {"objective": (c["x"] - 0.9) ** 2 + (c["y"] - 0.9) ** 2, "memory": c["x"] + c["y"]}

    limit, found = Objective("memory", limit=1.0, constraint=True), []
    for seed in range(3):
        search = Search(
            {"x": real(0, 1), "y": real(0, 1)},
            evaluate,
            strategy=strategy(),
            objectives=["objective", limit],
            seed=seed,
        )
        history = search.run(trials=40)
        best = history.best
        assert best.metrics["memory"] <= 1.0
        assert best.values == (best.metrics["objective"],)
        late = [t for t in history.done if t.id >= 20]
        assert sum(t.violation == 0 for t in late) >= len(late) / 3
        found.append(best.values[0])
    assert np.median(found) < (0.33 if strategy is GaussianProcessSearch else 0.4)
