from __future__ import annotations

import pytest
import search_cases as cases

pytest.importorskip("deephyper")

from scitoolkit.search import BayesianSearch, Search, Space, chain, choice, real

SPACE = Space(
    {
        "a": chain(3, [0, 16, 48, 96], reach=2),
        "lr": real(1e-4, 1e-1, log=True),
        "head": ["x", "y"],
        "forcing": choice(1.0, 2.0, when={"head": ["y"]}),
    }
)


def search(**more):
    return Search(SPACE, cases.distance, strategy=BayesianSearch(candidates=100), seed=1, **more)


def test_it_learns_from_what_it_tried():
    found = search().run(trials=40)
    assert found.best.values[0] < min(t.values[0] for t in found.done[:10])


def test_failures_and_several_objectives_are_told():
    def evaluate(configuration):
        if configuration["a"]["nodes"][0] == 96:
            raise ValueError("too wide")
        return {"wide": sum(configuration["a"]["nodes"]), "lr": -configuration["lr"]}

    strategy = BayesianSearch(candidates=50)
    made = Search(SPACE, evaluate, strategy=strategy, objectives=["wide", "lr"], seed=0)
    history = made.run(trials=25)
    assert len(history.done) + history.num_failed == 25
    assert len(history.front()) >= 1
