"""Contract suite of search spaces, to inherit in tests.

Example:
    class TestMySpace(SpaceContract):
        @pytest.fixture
        def space(self):
            return "my_space"

        @pytest.fixture
        def configuration(self):
            return Path("train.yaml")
"""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from scitoolkit.core.errors import ConfigError
from scitoolkit.search import Space, spaces
from scitoolkit.search.objective import TrainedTrial
from scitoolkit.search.parameters import Categorical, Chain
from scitoolkit.search.space import Configuration

DRAWS = 100
TRIES = 2000

_MODULE = '''\
"""The search space `{name}`, as plain data; keys are those of the searched configuration."""

from __future__ import annotations

from typing import Any

{cls}: dict[str, Any] = {{
    "training.batch_size": [8, 16, 32],
    "training.optimizer.lr": {{"low": 1e-4, "high": 1e-2, "log": True}},
}}
'''

_TEST = """\
from __future__ import annotations

import pytest
from scitoolkit.testing import SpaceContract


class Test{cls}(SpaceContract):
    @pytest.fixture
    def space(self):
        return "{name}"

    @pytest.fixture
    def configuration(self):
        raise NotImplementedError("return the path of a configuration that the space searches")
"""


class SpaceContract:
    """Contract suite of search spaces; override the fixtures `space` and `configuration`."""

    @staticmethod
    def skeleton(name: str, cls: str) -> tuple[str, str]:
        """Return module and test of a new space, for `scitoolkit new`."""
        return _MODULE.format(name=name, cls=cls), _TEST.format(name=name, cls=cls)

    @pytest.fixture
    def space(self) -> str:
        """Return the name of the space under test."""
        raise NotImplementedError("override the fixture `space`")

    @pytest.fixture
    def configuration(self) -> Path:
        """Return the YAML file of a configuration whose keys the space searches."""
        raise NotImplementedError("override the fixture `configuration`")

    def test_registered_as_plain_data(self, space: str) -> None:
        """The description is valid and unchanged by JSON, so that a resumed search is the same."""
        kind = spaces.get(space)
        assert kind.size > 1
        assert json.loads(json.dumps(kind.describe())) == kind.describe()
        assert Space(kind.describe()).describe() == kind.describe()
        point = kind.sample(random.Random(0))
        assert json.loads(json.dumps(point)) == point

    def test_drawn_configurations_are_valid(self, space: str, configuration: Path) -> None:
        """Draws, also with numbers at a bound, are valid and set every key that they name."""
        kind, trial, rng = spaces.get(space), TrainedTrial(str(configuration)), random.Random(0)
        for number in range(DRAWS):
            point = kind.sample(rng)
            if number % 2:
                point = _at_bounds(kind, point, rng)
            _assert_set(trial, point, seed=number)
            assert kind.decode(kind.encode(point)) == point

    def test_every_value_of_a_choice_is_drawn_and_valid(
        self, space: str, configuration: Path
    ) -> None:
        """No value is unreachable by its conditions, and none is refused by the domain."""
        kind, trial, rng = spaces.get(space), TrainedTrial(str(configuration)), random.Random(1)
        choices = {n: p for n, p in kind.parameters.items() if isinstance(p, Categorical)}
        missing = {(name, json.dumps(v)) for name, p in choices.items() for v in p.values}
        for _ in range(TRIES):
            if not missing:
                break
            point = kind.sample(rng)
            new = missing & {(name, json.dumps(point[name])) for name in choices.keys() & point}
            if new:
                _assert_set(trial, point)
                missing -= new
        assert not missing


def _at_bounds(space: Space, point: Configuration, rng: random.Random) -> Configuration:
    """Return the point with numbers at their bounds, unless a condition depends on the number."""
    for name in point:
        parameter = space.parameters[name]
        if isinstance(parameter, Categorical | Chain):
            continue
        moved = {**point, name: rng.choice((parameter.low, parameter.high))}
        try:
            space.encode(moved)
        except ConfigError:
            continue
        point = moved
    return point


def _assert_set(trial: TrainedTrial, point: Configuration, seed: int | None = None) -> None:
    """Validate the configuration of a point and compare the values of its keys."""
    _, config = trial.resolve(point, seed=seed)
    trial.cost(point)
    for key, value in point.items():
        value_at: Any = config
        for part in key.split("."):
            value_at = _item(value_at, part)
        assert _equal(value_at, value), f"{key} is {value_at!r}, not {value!r}"


def _item(parent: Any, name: str) -> Any:
    return parent[name] if isinstance(parent, Mapping) else getattr(parent, name)


def _equal(actual: Any, value: Any) -> bool:
    """Return whether a setting has a value of the space; a member may be given by its name."""
    if isinstance(value, Mapping):
        return all(_equal(_item(actual, name), part) for name, part in value.items())
    if isinstance(value, list):
        return len(actual) == len(value) and all(map(_equal, actual, value))
    return bool(getattr(actual, "name", actual) == value)
