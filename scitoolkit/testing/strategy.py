"""Contract suite of search strategies, to inherit in tests.

Example:
    class TestMyStrategy(StrategyContract):
        @pytest.fixture
        def config(self):
            return MyStrategyConfig()
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import pytest

from scitoolkit.search import Search, Space, chain, choice, integer, real
from scitoolkit.search.history import History, load_history
from scitoolkit.search.strategies import (
    SpaceExhausted,
    Strategy,
    StrategyConfig,
    SuccessiveHalving,
    strategies,
)
from scitoolkit.testing.member import check_registered, check_settings

Configuration = dict[str, Any]


def usual_space() -> Space:
    """Return a space with every type of variable, one of them conditional."""
    return Space(
        {
            "rate": real(1e-4, 1e-1, log=True),
            "width": integer(2, 64),
            "kind": ["a", "b"],
            "fixed": [3],
            "share": real(-1, 1),
            "layers": chain(3, [0, 8, 16], reach=2),
            "slope": choice(0.1, 0.2, when={"kind": ["b"]}),
        }
    )


def bowl(configuration: Configuration) -> float:
    """Return an objective with one minimum and a penalty for kind `b`."""
    penalty = 0.5 if configuration["kind"] == "b" else 0.0
    return (configuration["share"] - 0.4) ** 2 + abs(configuration["width"] - 20) / 60 + penalty


def fails_often(configuration: Configuration) -> float:
    """Return the objective, or raise ValueError for a third of the space."""
    if configuration["share"] > 0.3:
        raise ValueError("diverged")
    return bowl(configuration)


class StrategyContract:
    """Contract suite of search strategies; override the fixture `config`.

    Attributes:
        num_trials: trials per search; more than the strategy's initial random trials.
    """

    num_trials: ClassVar[int] = 24

    @pytest.fixture
    def config(self) -> StrategyConfig:
        """Return the configuration of the strategy under test."""
        raise NotImplementedError("override the fixture `config`")

    def search(
        self,
        config: StrategyConfig,
        folder: Path | None,
        evaluate: Any = bowl,
        seed: int = 0,
        **more: Any,
    ) -> Search:
        """Return a search with a new strategy."""
        return Search(
            usual_space(), evaluate, directory=folder, strategy=config.build(), seed=seed, **more
        )

    def test_registered_under_its_name(self, config: StrategyConfig) -> None:
        """The registry returns this class, which has a summary and is available."""
        check_registered(strategies, config)

    def test_each_build_is_a_strategy_with_its_settings(self, config: StrategyConfig) -> None:
        """Searches do not share strategy objects; the description is JSON and has a name."""
        one, two = config.build(), config.build()
        assert isinstance(one, Strategy)
        assert one is not two
        assert one.describe() == two.describe() == json.loads(json.dumps(one.describe()))
        assert one.describe()["name"]

    def test_keys_of_others_are_refused(self, config: StrategyConfig) -> None:
        """Unknown keys are refused."""
        check_settings(config)

    def test_asking_changes_nothing(self, config: StrategyConfig) -> None:
        """`ask` has no side effects between two events."""
        search = self.search(config, None)
        search.run(trials=self.num_trials // 2)
        before = json.dumps(search.strategy.state())
        proposals = [search.strategy.ask() for _ in range(3)]
        assert proposals[0] == proposals[1] == proposals[2]
        assert json.dumps(search.strategy.state()) == before

    def test_same_seed_same_search(self, config: StrategyConfig) -> None:
        """Proposals depend on seed and log alone; another seed gives another search."""
        runs = [self.search(config, None, seed=seed).run(trials=12) for seed in (1, 1, 2)]
        points = [[t.codes for t in run.trials.values()] for run in runs]
        assert points[0] == points[1] != points[2]

    def test_replay_equals_live(self, config: StrategyConfig, tmp_path: Path) -> None:
        """A search that is stopped and resumed twice equals an uninterrupted search."""
        whole = self.search(config, tmp_path / "whole").run(trials=self.num_trials)
        stops = (self.num_trials // 3, 2 * self.num_trials // 3, self.num_trials)
        for number, stop in enumerate(stops):
            search = self.search(config, tmp_path / "parts")
            parts = search.run(trials=stop, resume=number > 0)
        if not search.strategy.budgets:  # with budgets, promotions depend on the interruptions
            assert _issued(parts) == _issued(whole)
        replayed = self.search(config, tmp_path / "parts")
        replayed.run(trials=self.num_trials, resume=True)
        assert replayed.strategy.state() == search.strategy.state()
        assert _issued(load_history(tmp_path / "parts")) == _issued(parts)

    def test_never_repeats_and_stays_in_the_space(self, config: StrategyConfig) -> None:
        """No configuration is tried twice; all are in the space and within the cost limits."""
        objectives: list[Any] = ["objective"]
        from scitoolkit.search import Objective

        search = self.search(
            config,
            None,
            cost=lambda c: {"size": c["width"]},
            objectives=[*objectives, Objective("size", limit=40)],
        )
        history = search.run(trials=self.num_trials)
        assert history.duplicates() == 0
        assert len(history.done) == self.num_trials
        for trial in history.trials.values():
            assert search.space.allows(trial.codes)
            assert trial.configuration["width"] <= 40
            assert trial.configuration["fixed"] == 3

    def test_small_spaces_are_finished(self, config: StrategyConfig) -> None:
        """Every configuration is tried once, then the strategy raises SpaceExhausted."""
        space = Space({"x": integer(1, 5), "y": [0, 1]})
        search = Search(space, lambda c: c["x"] + c["y"], strategy=config.build())
        history = search.run(trials=50)
        assert len({t.codes for t in history.trials.values()}) == space.size == 10
        if not search.strategy.budgets:
            with pytest.raises(SpaceExhausted):
                search.strategy.ask()

    def test_failed_trials_are_survived(self, config: StrategyConfig) -> None:
        """Failed trials count as tried and do not stop the strategy."""
        history = self.search(config, None, fails_often).run(trials=self.num_trials)
        assert history.num_failed > 0
        assert history.duplicates() == 0
        assert len({t.codes for t in history.trials.values()}) == self.num_trials

    def test_halving_goes_on_top(self, config: StrategyConfig) -> None:
        """`halving` starts configurations at the smallest budget and promotes some of them."""
        limits = {"smallest": 1, "largest": 9}
        halved = type(config).model_validate({**config.model_dump(), "halving": limits})
        strategy = halved.build()
        assert isinstance(strategy, SuccessiveHalving)
        search = Search(usual_space(), _with_budget, strategy=strategy)
        history = search.run(trials=18)
        assert {t.budget for t in history.trials.values()} > {1}


def _with_budget(configuration: Configuration, trial: Any) -> float:
    return bowl(configuration) / trial.budget


def _issued(history: History) -> list[tuple[Any, ...]]:
    """Return number, configuration, origin, seed and stage of each trial."""
    return [(t.id, t.codes, t.origin, t.parent, t.seed, t.stage) for t in history.trials.values()]
