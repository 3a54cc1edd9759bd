from __future__ import annotations

import json
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scitoolkit.core.config import ConfigProblems
from scitoolkit.core.errors import ConfigError
from scitoolkit.search import (
    AgingEvolution,
    BayesianSearch,
    GaussianProcessSearch,
    RandomSearch,
    Search,
    Space,
    chain,
    choice,
    integer,
    real,
    spaces,
)

MIXED = Space(
    {
        "cells": chain(3, [0, 16, 32], reach=2),
        "head": ["last", "all", "decoder"],
        "forcing": choice(0.0, 0.5, 1.0, when={"head": ["decoder"]}),
        "layers": integer(1, 4),
        "width": integer(8, 64, step=8, when={"layers": [2, 3, 4]}),
        "lr": real(1e-4, 1e-1, log=True),
        "bias": [True, False],
        "one": choice(1, 2, 4, when={"forcing": [0.5]}),
    }
)


def finite(**more):
    return Space(
        {
            "head": ["last", "all", "decoder"],
            "forcing": choice(0, 1, when={"head": ["decoder"]}),
            "deep": choice(0, 1, 2, when={"forcing": [1]}),
            "cells": chain(2, [0, 16], reach=1),
            **more,
        }
    )


def test_the_space_of_the_paper_has_exactly_its_size():
    assert spaces.pod_lstm.size == 8_605_184 == 7**5 * 2**9


@given(seed=st.integers(0, 2**32))
@settings(max_examples=100, deadline=None)
def test_encode_and_decode_are_inverse_and_mutation_changes(seed):
    rng = random.Random(seed)
    configuration = MIXED.sample(rng)
    codes = MIXED.encode(configuration)
    assert MIXED.decode(codes) == configuration
    child = MIXED.mutate(configuration, rng)
    assert child != configuration
    assert MIXED.decode(MIXED.encode(child)) == child
    assert ("forcing" in child) == (child["head"] == "decoder")
    assert ("width" in child) == (child["layers"] > 1)


def test_mutation_changes_one_variable_and_what_depends_on_it():
    rng = random.Random(1)
    for _ in range(200):
        codes = MIXED.sample_codes(rng)
        child = MIXED.mutate_codes(codes, rng)
        changed = {name for name, a, b in zip(MIXED.variables, codes, child, strict=True) if a != b}
        assert len(changed - {"forcing", "width", "one"}) <= 1
        assert changed


def test_size_counts_what_enumeration_finds():
    space = finite()
    found = space.all_codes
    assert len(found) == len(set(found)) == space.size == (2 + 1 + 3) * 2**2 * 2**2
    assert MIXED.size == math.inf


def test_an_integer_of_many_values_that_controls_another_is_counted_at_once():
    some = {"n": integer(1, 10**9), "k": integer(1, 3, when={"n": [1, 2]})}
    assert Space(some).size == 2 * 3 + 10**9 - 2
    assert Space({**some, "l": choice("a", "b", when={"n": [2, 7]})}).size == 3 + 6 + 2 + 10**9 - 3


def test_few_configurations_of_a_small_space_satisfy_an_equality():
    space = Space(
        {"a": integer(1, 300), "b": integer(1, 300)}, where=lambda c: c["a"] * c["b"] == 289
    )
    rng = random.Random(0)
    drawn = {tuple(space.sample(rng).values()) for _ in range(40)}
    assert drawn == {(1, 289), (17, 17), (289, 1)}
    history = Search(space, lambda c: abs(c["a"] - 17), strategy=RandomSearch()).run()
    assert len(history.done) == 3
    assert history.best.configuration == {"a": 17, "b": 17}


def test_an_equality_that_nothing_satisfies_is_refused():
    space = Space({"a": integer(1, 9)}, where=lambda c: c["a"] == 10)
    with pytest.raises(ConfigError, match="none of 9 configurations"):
        space.sample(random.Random(0))


def test_samples_cover_a_small_space():
    space, rng = finite(), random.Random(0)
    assert {space.sample_codes(rng) for _ in range(3000)} == set(space.all_codes)


def test_a_space_read_from_plain_data_is_the_same():
    again = Space(MIXED.describe())
    assert again.describe() == MIXED.describe()
    assert again.difference(MIXED.describe()) == []
    other = Space({**MIXED.describe(), "head": ["last"], "forcing": [1], "one": [1]})
    lines = "\n".join(other.difference(MIXED.describe()))
    assert "~ head" in lines
    assert "lr" not in lines


def test_where_is_kept_by_samples_and_mutations():
    space = Space({"a": integer(0, 9), "b": integer(0, 9)}, where=lambda c: c["a"] < c["b"])
    rng = random.Random(0)
    configuration = space.sample(rng)
    for _ in range(100):
        configuration = space.mutate(configuration, rng)
        assert configuration["a"] < configuration["b"]
    impossible = Space({"a": [1, 2]}, where=lambda c: c["a"] > 2)
    with pytest.raises(ConfigError, match="none of"):
        impossible.sample(rng)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({}, "no parameters"),
        ({"a": []}, "no values"),
        ({"a": [1, 1.0]}, "listed twice"),
        ({"a": {"low": 2, "high": 1}}, "not below"),
        ({"a": {"low": 0.0, "high": 1.0, "log": True}}, "low > 0"),
        ({"a": {"low": 1, "hihg": 2}}, "describe no parameter"),
        ({"a": [object()]}, "numbers, strings"),
        ({"a": {"nodes": 0, "choices": [1]}}, "0 nodes"),
        ({"a": [1.0, float("nan")]}, "finite numbers"),
        ({"a": {"low": float("nan"), "high": 1.0}}, "low nan is not a finite"),
        ({"a": {"low": 0.0, "high": float("inf")}}, "high inf is not a finite"),
        ({"a": {"low": -1e308, "high": 1.7e308}}, "double precision"),
        ({"a": {"low": "x", "high": 1}}, "not describe a parameter"),
        ({"a": {"low": True, "high": 3}}, "`low` is True"),
        ({"a": {"low": 0.1, "high": 1.0, "log": "no"}}, "`log` is 'no'"),
        ({"a": {"low": 0.0, "high": 1.0, "step": -0.1}}, "step -0.1 is not positive"),
        ({"a": integer(1.0, 4)}, "low 1.0 is not an integer"),
        ({"a": {"values": "abc"}}, "`values` is 'abc', not a list"),
        ({"a": {"nodes": 2, "choices": "ab"}}, "`choices` is 'ab', not a list"),
        ({"a": {"values": [1, 2], "when": "b"}}, "`when` is 'b'"),
        (["a", "b"], "not a mapping from names"),
        ({"a": {"values": [1, 2], "when": {"bb": [1]}}, "b": [1, 2]}, "did you mean b"),
        ({"a": {"values": [1, 2], "when": {"b": [3]}}, "b": [1, 2]}, "never has that value"),
        ({"a": {"values": [1, 2], "when": {"a": [1]}}}, "itself"),
        (
            {"a": {"values": [1], "when": {"b": [1]}}, "b": {"values": [1], "when": {"a": [1]}}},
            "circular",
        ),
    ],
)
def test_contradictions_are_said(parameters, said):
    with pytest.raises(ConfigProblems, match=said):
        Space(parameters)


def test_all_problems_are_reported_at_once():
    with pytest.raises(ConfigProblems) as caught:
        Space({"a": [], "b": {"low": 3, "high": 1}})
    assert len(caught.value.problems) == 2


@pytest.mark.parametrize(
    ("configuration", "said"),
    [
        ({"head": "last"}, "missing"),
        ({"head": "last", "cells": {"nodes": [0, 16]}, "forcing": 1}, "condition"),
        ({"head": "none", "cells": {"nodes": [0, 16]}}, "is none of"),
        ({"head": "last", "cells": {"nodes": [0]}}, "nodes"),
        ({"head": "last", "cells": {"nodes": [0, 0], "skips": [[0, 2]]}}, "not possible"),
        ({"haed": "last"}, "head"),
    ],
)
def test_configurations_outside_the_space_are_refused(configuration, said):
    with pytest.raises(ConfigError, match=said):
        finite().encode(configuration)


@pytest.mark.parametrize(("low", "high", "log"), [(1540.0, 1560.0, False), (1540.0, 1560.0, True)])
def test_reals_are_not_rounded(low, high, log):
    space = Space({"x": real(low, high, log=log)})
    rng = random.Random(0)
    values = [space.sample(rng)["x"] for _ in range(500)]
    assert len(set(values)) == 500
    assert all(low <= v <= high for v in values)
    assert len({round(v, 1) for v in values}) > 150
    changed = {space.mutate({"x": values[0]}, rng)["x"] for _ in range(200)}
    assert len(changed) == 200


def test_a_search_of_a_narrow_range_finds_its_optimum():
    search = Search({"T": real(1000.0, 1009.0)}, lambda c: (c["T"] - 1004.3) ** 2)
    history = search.run(trials=40)
    assert len(history.done) == 40
    assert history.duplicates() == 0
    assert abs(history.best.configuration["T"] - 1004.3) < 0.3


def test_a_grid_is_made_when_asked_for():
    space = Space({"x": {"low": 0.0, "high": 1.0, "step": 0.1}})
    assert space.size == 11
    rng = random.Random(0)
    values = {space.sample(rng)["x"] for _ in range(300)}
    assert sorted(values) == pytest.approx([k / 10 for k in range(11)])
    assert Space(space.describe()).describe() == space.describe()
    assert all(space.decode(space.encode({"x": k / 10}))["x"] in values for k in range(11))
    with pytest.raises(ConfigError, match=r"by 0\.1"):
        space.encode({"x": 0.25})
    assert Space({"x": real(1.0, 2.0, step=0.3)}).size == 4
    assert Space({"x": {"low": 1, "high": 2, "step": 0.25}}).size == 5


def test_ranges_of_one_value_and_numbers_of_numpy():
    import numpy as np

    space = Space(
        {
            "one": integer(3, 3),
            "same": real(1, 1),
            "yaml": {"low": 2, "high": 2},
            "numpy": integer(np.int64(0), np.int32(4)),
            "range": range(4),
            "array": np.arange(3),
        }
    )
    configuration = space.sample(random.Random(0))
    assert (configuration["one"], configuration["same"], configuration["yaml"]) == (3, 1.0, 2)
    assert space.size == 5 * 4 * 3
    json.dumps(space.describe())
    assert Space(space.describe()).describe() == space.describe()


def test_a_range_of_two_integers_is_told(caplog):
    Space({"x": {"low": 0, "high": 1}})
    assert "write 0.0 for real numbers" in caplog.text


@pytest.mark.parametrize("name", ["low", "high", "step", "prior", "spread"])
@pytest.mark.parametrize("value", ["a", {}, [1.0], 1j, 10**400], ids=lambda v: type(v).__name__)
def test_bounds_that_are_no_numbers_are_refused(name, value):
    numbers = {"low": 0.0, "high": 1.0, "prior": 0.5, name: value}
    with pytest.raises(ConfigError, match=f"{name} is .* not a number"):
        real(**numbers)
    with pytest.raises(ConfigProblems, match=r"space\.p"):
        Space({"p": numbers})
    with pytest.raises(ConfigProblems):
        Space({"p": integer(10**400, 10**400)})


@pytest.mark.parametrize(
    "strategy", [RandomSearch, lambda: AgingEvolution(4, 2), GaussianProcessSearch, BayesianSearch]
)
def test_a_space_of_one_configuration_is_searched(strategy):
    space = {"x": real(0, 0), "y": integer(1, 1), "z": [3], "w": range(1)}
    history = Search(space, lambda c: c["x"], strategy=strategy()).run(trials=5)
    assert [t.configuration for t in history.done] == [{"x": 0.0, "y": 1, "z": 3, "w": 0}]


@pytest.mark.parametrize("kind", [integer(0, 10, step=30), real(0, 1, step=1.5)])
def test_a_step_beyond_the_range_is_refused(kind):
    with pytest.raises(ConfigProblems, match="larger than the range"):
        Space({"x": kind})
    assert Space({"x": integer(0, 10, step=10)}).size == 2


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({1: [1, 2], "1": [3, 4]}, "another parameter has that name"),
        ({"": [1, 2]}, "no name"),
        ({"c": chain(2, [1, 2]), "c.node1": [1, 2]}, "a part of a chain"),
        ({"c.node1": [1, 2], "c": chain(2, [1, 2])}, "a part of a chain"),
    ],
)
def test_parameters_of_one_name_are_refused(parameters, said):
    with pytest.raises(ConfigProblems, match=said):
        Space(parameters)
