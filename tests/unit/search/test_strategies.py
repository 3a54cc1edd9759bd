"""Every registered strategy keeps its contract; keys by name."""

from __future__ import annotations

import pytest

from scitoolkit.core.config import load_config
from scitoolkit.core.errors import ConfigError
from scitoolkit.search.config import SearchConfig
from scitoolkit.search.strategies import StrategyConfig, strategies
from scitoolkit.testing.strategy import StrategyContract

# Settings with which a strategy gets past its start within the trials of the contract.
QUICK = {
    "evolution": {"population": 8, "tournament_size": 3},
    "bayesian": {"candidates": 50},
    "gaussian_process": {"start": 5},
}


class TestStrategies(StrategyContract):
    @pytest.fixture(params=strategies.names())
    def config(self, request) -> StrategyConfig:
        assert not strategies.get(request.param).unavailable()
        return strategies.get(request.param)(**QUICK.get(request.param, {}))


def write(folder, text: str):
    path = folder / "search.yaml"
    path.write_text("config: a.yaml\nspace: {x: [1, 2]}\nobjectives: [{name: y}]\n" + text)
    return path


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("strategy: {name: random, population: 7}", r"strategy\.population: .*`random`.*halving"),
        ("strategy: {name: random, sample: 3}", r"strategy\.sample"),
        ("strategy: {name: bayesian, tournament_size: 3}", r"strategy\.tournament_size: .*candid"),
        ("strategy: {name: evolutoin}", "did you mean evolution"),
        (
            "strategy: {name: evolution, population: 3, tournament_size: 4}",
            "tournament_size <= population",
        ),
        ("budget: {evaluator: serial, workers: 4}", "`workers` is not read by .* 'serial'"),
        ("budget: {evaluator: ray, threads: 4}", "`threads` is not read by .* 'ray'"),
        ("budget: {evaluator: mpi, gpus: [0]}", "`gpus` is not read"),
        ("budget: {evaluator: prozesses}", "did you mean processes"),
    ],
)
def test_keys_that_nobody_reads_are_refused(tmp_path, text, said):
    with pytest.raises(ConfigError, match=said):
        load_config(SearchConfig, write(tmp_path, text))


def test_former_keys_and_short_forms(tmp_path, caplog):
    text = "strategy: {name: evolution, population: 6, sample: 3}\nbudget: {evaluator: serial}"
    config = load_config(SearchConfig, write(tmp_path, text))
    assert config.strategy.tournament_size == 3
    assert "'sample' is now called 'tournament_size'" in caplog.text
    assert config.budget.evaluator.name == "serial"
    assert load_config(SearchConfig, write(tmp_path, "strategy: random")).strategy.name == "random"
