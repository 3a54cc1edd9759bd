"""Optuna's samplers behind the interface of the other strategies."""

from __future__ import annotations

import pytest

pytest.importorskip("optuna")
pytest.importorskip("cmaes")

from scitoolkit.search import Objective, OptunaSearch, Search, Space, choice, integer, real

SPACE = Space(
    {
        "x": real(-3, 5),
        "y": real(1e-3, 10, log=True),
        "n": integer(1, 20),
        "kind": ["a", "b"],
        "slope": choice(0.1, 0.2, when={"kind": ["b"]}),
    }
)


def bowl(c) -> float:
    return (c["x"] - 1) ** 2 + abs(c["n"] - 5) / 10 + (c["kind"] == "b") + abs(c["y"] - 1) / 10


@pytest.mark.parametrize("sampler", ["tpe", "cmaes", "gp"])
def test_a_sampler_learns_and_repeats_nothing(sampler):
    history = Search(SPACE, bowl, strategy=OptunaSearch(sampler)).run(trials=40)
    first = min(t.values[0] for t in history.done[:10])
    assert history.duplicates() == 0
    assert history.best.values[0] < first
    assert any(t.origin == sampler for t in history.done)


@pytest.mark.parametrize("sampler", ["cmaes", "nsga2"])
def test_a_resumed_search_goes_on_as_it_would_have(tmp_path, sampler):
    def search(folder):
        return Search(SPACE, bowl, directory=folder, strategy=OptunaSearch(sampler), seed=3)

    whole = search(tmp_path / "whole").enqueue({"x": 0, "y": 1, "n": 3, "kind": "a"}).run(trials=30)
    for stop in (7, 19, 30):
        part = search(tmp_path / "part").enqueue({"x": 0, "y": 1, "n": 3, "kind": "a"})
        parts = part.run(trials=stop, resume=stop > 7)
    assert [t.codes for t in parts.done] == [t.codes for t in whole.done]


def test_several_objectives_are_told():
    search = Search(
        SPACE,
        lambda c: {"error": bowl(c), "cost": c["n"]},
        strategy=OptunaSearch("nsga2"),
        objectives=["error", Objective("cost")],
    )
    history = search.run(trials=25)
    assert len(history.front()) > 1
    assert len(search.strategy._study.directions) == 2
    assert len(search.strategy._study.get_trials(states=None)) >= 24
