from __future__ import annotations

import pytest
import search_cases as cases

pytest.importorskip("deephyper")

from scitoolkit.search import BayesianSearch, Search, Space, chain, choice, load_history, real
from scitoolkit.search.history import same_history

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


def test_it_learns_repeats_nothing_and_resumes_to_the_same_history(tmp_path):
    whole = search().run(trials=40)
    assert whole.duplicates() == 0
    early = min(t.values[0] for t in whole.done[:10])
    assert whole.best.values[0] < early
    search(directory=tmp_path).run(trials=17)
    resumed = search(directory=tmp_path).run(trials=40, resume=True)
    assert same_history(resumed, whole)
    assert same_history(load_history(tmp_path), whole)


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
