from __future__ import annotations

import pytest

from scitoolkit.core.config import load_config
from scitoolkit.core.errors import ConfigError
from scitoolkit.search.config import SearchConfig
from scitoolkit.search.strategies import strategies
from scitoolkit.testing import StrategyContract


class TestHillClimb(StrategyContract):
    @pytest.fixture
    def config(self):
        return strategies.get("hill_climb")(samples=5)


def test_it_is_listed_and_its_keys_are_checked(tmp_path):
    assert strategies.member("hill_climb").origin == "scitoolkit-hill-climb"
    path = tmp_path / "search.yaml"
    path.write_text("config: a.yaml\nspace: {x: [1, 2]}\nobjectives: [{name: y}]\n")
    found = load_config(SearchConfig, path, ["strategy.name=hill_climb", "strategy.samples=3"])
    assert found.strategy.samples == 3
    with pytest.raises(ConfigError, match="did you mean hill_climb"):
        load_config(SearchConfig, path, ["strategy.name=hill_clim"])
    with pytest.raises(ConfigError, match=r"not a key of `hill_climb`, which has halving, samples"):
        load_config(SearchConfig, path, ["strategy={name: hill_climb, population: 3}"])
