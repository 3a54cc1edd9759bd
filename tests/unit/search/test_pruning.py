"""Trials that end early: the median rule and the brackets of Hyperband."""

from __future__ import annotations

import math
from collections import Counter

import pytest

from scitoolkit.core.config import ConfigProblems
from scitoolkit.core.errors import ConfigError, ScitoolkitError
from scitoolkit.search import (
    AgingEvolution,
    GaussianProcessSearch,
    MedianPruning,
    RandomSearch,
    Search,
    SuccessiveHalving,
    load_history,
    real,
)
from scitoolkit.search.history import History
from scitoolkit.search.strategies.gaussian_process.config import GaussianProcessConfig

SPACE = {"x": real(0, 1), "y": real(0, 1)}
EPOCHS = 12


def bowl(c):
    return (c["x"] - 0.3) ** 2 + (c["y"] - 0.6) ** 2


class Training:
    """Trains for 12 epochs; `sign` -1 reports and returns a figure that is to be large."""

    def __init__(self, sign=1.0, broken=lambda c: False):
        self.sign, self.broken, self.epochs = sign, broken, Counter()

    def __call__(self, configuration, trial):
        for epoch in range(1, EPOCHS + 1):
            self.epochs[trial.number] += 1
            value = self.sign * (bowl(configuration) + 1 / epoch)
            trial.report(epoch, score=math.nan if self.broken(configuration) else value)
        return self.sign * bowl(configuration)


@pytest.mark.parametrize("sign", [1.0, -1.0, 1e200, 1e-200])
@pytest.mark.parametrize("strategy", [RandomSearch, lambda: AgingEvolution(8, 3), None])
def test_trials_worse_than_the_median_stop_early(tmp_path, strategy, sign):
    def search(**more):
        direction = "min" if sign > 0 else "max"
        training = Training(sign)
        return training, Search(
            SPACE,
            training,
            directory=tmp_path,
            objectives=["objective"],
            strategy=strategy and strategy(),
            pruning=MedianPruning("score", direction, trials=4, epochs=2),
            **more,
        )

    training, run = search()
    history = run.run(trials=30)
    pruned = [t for t in history.searched if t.status == "pruned"]
    assert len(pruned) == history.num_pruned >= 4
    assert history.num_failed == 0
    assert history.num_done + history.num_pruned == 30
    assert sum(training.epochs.values()) < 0.85 * 30 * EPOCHS
    assert all(training.epochs[t.id] == len(t.epochs) >= 3 for t in pruned)
    assert all(training.epochs[t.id] == EPOCHS for t in history.done)
    assert all("worse than" in t.error for t in pruned)
    assert not {t.id for t in history.ranked()} & {t.id for t in pruned}
    # The last value of a pruned trial is known here: none of them was better than the best.
    assert all(
        bowl(t.configuration) >= bowl(history.best.configuration) for t in pruned if sign > 0
    )
    read = load_history(tmp_path)
    assert [(t.id, t.status) for t in read.searched] == [(t.id, t.status) for t in history.searched]
    assert search()[1].run(trials=33, resume=True).num_searched == 33


def test_reports_that_are_no_numbers_end_a_trial():
    training = Training(broken=lambda c: c["x"] > 0.5)
    run = Search(SPACE, training, strategy=RandomSearch(), pruning=MedianPruning("score", trials=2))
    history = run.run(trials=20)
    broken = [t for t in history.searched if t.configuration["x"] > 0.5 and t.id > 8]
    assert len(broken) > 3
    assert {(t.status, len(t.epochs)) for t in broken} == {("pruned", 2)}


def test_a_metric_that_is_not_reported_is_named():
    run = Search(SPACE, Training(), pruning=MedianPruning("loss"))
    with pytest.raises(ScitoolkitError, match=r"'loss'.*epoch 1 lacks"):
        run.run(trials=12)


@pytest.mark.parametrize(
    "arguments", [("m", "least"), ("m", "min", 0), ("m", "min", 5, -1), ("m", "min", math.nan)]
)
def test_arguments_that_make_no_rule_are_refused(arguments):
    with pytest.raises(ConfigError, match="pruning"):
        MedianPruning(*arguments)
    halving = SuccessiveHalving(RandomSearch(), smallest=1, largest=9)
    with pytest.raises(ConfigError, match="both stop trials"):
        Search(SPACE, Training(), strategy=halving, pruning=MedianPruning("score"))


def test_the_bounds_are_medians_of_the_reports():
    history = History([])
    for number, values in enumerate(([4.0, 2.0], [1.0, 3.0], [9.0, 9.0], [5.0])):
        epochs = [{"epoch": i + 1, "m": v} for i, v in enumerate(values)]
        history.apply(
            {"event": "issue", "trial": number, "stage": 0, "codes": [], "values": {}}
            | {"seed": 0, "origin": ""}
        )
        history.apply(
            {"event": "finish", "trial": number, "stage": 0, "worker": 0, "start": 0, "t": 1}
            | {"metrics": {}, "epochs": epochs}
        )
    assert MedianPruning("m", trials=3, epochs=0).bounds(history).bounds == {1: 4.5, 2: 3.0}
    assert MedianPruning("m", trials=3).bounds(history).bounds == {2: 3.0}
    assert MedianPruning("m", trials=4, epochs=0).bounds(history).bounds == {1: 4.5}
    assert MedianPruning("m", "max", 3, 0).bounds(history).bounds == {1: -4.5, 2: -3.0}


@pytest.mark.parametrize(
    "base", [RandomSearch, lambda: AgingEvolution(5, 2), GaussianProcessSearch]
)
@pytest.mark.parametrize("brackets", [1, 2, 3])
def test_brackets_start_at_successive_budgets_and_promote_among_themselves(
    tmp_path, brackets, base
):
    def evaluate(configuration, trial):
        return bowl(configuration) + 1 / trial.budget

    def search():
        strategy = SuccessiveHalving(base(), 1, 9, factor=3, brackets=brackets)
        return Search(SPACE, evaluate, directory=tmp_path, strategy=strategy)

    first = search().run(trials=30)
    history = search().run(trials=60, resume=True)
    assert [t.codes for t in history.searched][:30] == [t.codes for t in first.searched]
    begun = Counter(t.first_stage for t in history.searched)
    assert set(begun) == set(range(brackets))
    # Hyperband: 9/3, 3/2 and 1/1 of the configurations for 2, 1 and 0 promotions.
    weights = [3.0, 1.5, 1.0][:brackets]
    for stage, weight in enumerate(weights):
        assert begun[stage] == pytest.approx(60 * weight / sum(weights), abs=14)
    for trial in history.searched:
        assert [1, 3, 9][trial.reached] == trial.budget
        assert trial.values[0] == bowl(trial.configuration) + 1 / trial.budget
        assert len(trial.spans) == trial.reached - trial.first_stage + 1
    for stage in range(min(brackets, 2)):
        begun_there = [t for t in history.searched if t.first_stage == stage]
        promoted = {t.id for t in begun_there if t.reached > stage}
        best_third = sorted(begun_there, key=lambda t: bowl(t.configuration))[: begun[stage] // 3]
        assert {t.id for t in best_third} <= promoted
        assert len(promoted) < begun[stage]
    assert history.best.budget == 9
    assert bowl(history.best.configuration) < 0.05


def test_more_brackets_than_budgets_are_refused():
    for brackets in (0, 4):
        with pytest.raises(ConfigError, match="one for every budget"):
            SuccessiveHalving(RandomSearch(), 1, 9, brackets=brackets)
    with pytest.raises(ConfigProblems, match="one for every budget"):
        GaussianProcessConfig(halving={"smallest": 1, "largest": 9, "brackets": 4})
    halving = {"smallest": 1, "largest": 9, "brackets": 3}
    strategy = GaussianProcessConfig(halving=halving).build()
    assert strategy.describe()["brackets"] == 3
    assert "brackets" not in SuccessiveHalving(RandomSearch(), 1, 9).describe()
