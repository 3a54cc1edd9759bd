"""Equalities: values that follow from others, and constraints on measured figures."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from scitoolkit.core.config import ConfigProblems
from scitoolkit.core.errors import ConfigError
from scitoolkit.search import (
    AgingEvolution,
    Objective,
    RandomSearch,
    Search,
    Space,
    chain,
    choice,
    integer,
    load_history,
    real,
)
from scitoolkit.search.config import ConstraintConfig

TOTAL = 5_000
EQUALITIES = {
    # parameters, derived values, whether the equality holds
    "integers": (
        {"a": integer(1, 10_000), "c": integer(1, 10_000)},
        {"b": lambda v: TOTAL - v["a"]},
        lambda v: v["a"] + v["b"] == TOTAL,
    ),
    "shares": (
        {"a": real(0, 1), "c": real(0, 1)},
        {"b": lambda v: 1.0 - v["a"] - v["c"]},
        lambda v: math.isclose(v["a"] + v["b"] + v["c"], 1.0),
    ),
    "numpy": (
        {"a": real(1, 4, log=True), "c": choice("x", "y")},
        {"b": lambda v: np.float64(4.0) / v["a"], "n": lambda v: np.int64(len(v))},
        lambda v: math.isclose(v["a"] * v["b"], 4.0) and v["n"] == 3,
    ),
    "of a chain": (
        {"a": chain(2, [1, 8], reach=1), "c": integer(1, 4)},
        {"b": lambda v: [*v["a"]["nodes"], v["c"]]},
        lambda v: v["b"] == [*v["a"]["nodes"], v["c"]],
    ),
}


def score(v):
    return float(len(str(v["a"]))) + 0.1 * len(str(v["c"]))


@pytest.mark.parametrize("strategy", [RandomSearch, lambda: AgingEvolution(5, 2), None])
@pytest.mark.parametrize("kind", list(EQUALITIES))
def test_every_trial_satisfies_an_equality(tmp_path, kind, strategy):
    parameters, derived, holds = EQUALITIES[kind]

    def search(**more):
        space = Space(parameters, derived=derived)
        return Search(space, score, strategy=strategy and strategy(), **more)

    search(directory=tmp_path).run(trials=6)
    history = search(directory=tmp_path).run(trials=12, resume=True)
    read = load_history(tmp_path)
    for trials in (history.done, read.done):
        assert len(trials) == 12
        assert all(holds(t.configuration) for t in trials)
    # Trials of a log, and configurations of a user, may hold the derived values or not.
    imported = search().import_trials(tmp_path / "results.csv").run(trials=1)
    assert len(imported.done) == 13
    own = {n: history.done[0].configuration[n] for n in parameters}
    assert (
        search().enqueue(own).run(trials=1).done[0].configuration == history.done[0].configuration
    )
    wrong = {**history.done[0].configuration, "b": -77}
    with pytest.raises(ConfigError, match=r"b: -77 is not .*follows from the others"):
        search().enqueue(wrong)
    # A grown space keeps the trials.
    grown = Space({**parameters, "c": integer(1, 20_000)}, derived=derived)
    if kind == "integers":
        more = Search(grown, score, directory=tmp_path, strategy=strategy and strategy())
        assert more.run(trials=14, resume=True).num_done == 14
        assert load_history(tmp_path).num_done == 14


def test_where_sees_derived_values_and_their_errors_name_the_configuration():
    space = Space(
        {"a": real(0, 1), "b": real(0, 1)},
        where=lambda v: v["c"] >= 0,
        derived={"c": lambda v: 1 - v["a"] - v["b"]},
    )
    rng = random.Random(0)
    assert all(space.sample(rng)["c"] >= 0 for _ in range(200))
    with pytest.raises(ConfigError, match=r"space.derived.c: raised KeyError: 'z' for {'a': "):
        Space({"a": real(0, 1)}, derived={"c": lambda v: v["z"]}).sample(rng)
    for derived, said in (({"a": max}, "parameter too"), ({"c": 3}, "not a function")):
        with pytest.raises(ConfigProblems, match=said):
            Space({"a": real(0, 1)}, derived=derived)
    unsolved = Space(
        {n: integer(1, 10_000) for n in "ab"}, where=lambda v: v["a"] + v["b"] == TOTAL
    )
    with pytest.raises(ConfigError, match=r"none of .*derived="):
        unsolved.sample(random.Random(1))


@pytest.mark.parametrize("scale", [1e-3, 1.0, -200.0])
def test_a_measured_figure_is_held_at_a_value(scale):
    volume = Objective("v", "equal", 0.5 * scale, constraint=True, tolerance=0.02 * abs(scale))
    history = Search(
        {"x": real(0, 1), "y": real(0, 1)},
        lambda c: {"loss": c["x"], "v": scale * (c["x"] + c["y"])},
        objectives=["loss", volume],
    ).run(trials=40)
    best = history.best.configuration
    assert abs(best["x"] + best["y"] - 0.5) <= 0.02
    assert best["x"] < 0.05
    for value, excess in ((0.5, 0.0), (0.52, 0.0), (0.6, 0.16), (0.4, 0.16)):
        assert volume.excess({"v": value * scale}) == pytest.approx(excess, abs=1e-9)
    assert not volume.within({"v": None})


@pytest.mark.parametrize(
    "arguments",
    [
        ("v", "equal", 1.0),
        ("v", "equal", 1.0, True),
        ("v", "equal", 1.0, False, 0.1),
        ("v", "equal", 1.0, True, math.nan),
        ("v", "equal", 1.0, True, math.inf),
        ("v", "equal", 1.0, True, -0.1),
        ("v", "min", 1.0, True, 0.1),
        ("v", "equals", 1.0, True, 0.1),
    ],
)
def test_an_equality_is_a_constraint_with_a_tolerance(arguments):
    with pytest.raises(ConfigError):
        Objective(*arguments)


def test_a_file_states_an_equality():
    made = ConstraintConfig(name="v", direction="equal", limit=2.0, tolerance=0.1).made()
    assert made == Objective("v", "equal", 2.0, True, 0.1)
    with pytest.raises(ConfigProblems, match="tolerance above 0"):
        ConstraintConfig(name="v", direction="equal", limit=2.0)
