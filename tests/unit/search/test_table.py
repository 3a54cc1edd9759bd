from __future__ import annotations

import csv

import pytest

from scitoolkit.core.errors import ConfigError
from scitoolkit.search import RandomSearch, Search, integer, load_history, real, to_dataframe

SPACE = {"x": real(0, 1), "n": integer(1, 9), "kind": ["a", "b"]}
GOOD = [{"x": 0.3, "n": 4, "kind": "b"}, {"x": 0.31, "n": 4, "kind": "a"}]


def score(c):
    if c["n"] == 9:
        raise ValueError("diverged")
    return (c["x"] - 0.3) ** 2 + (c["n"] - 4) ** 2


def search(folder=None):
    return Search(SPACE, score, directory=folder, strategy=RandomSearch(), seed=1)


def test_known_good_configurations_are_tried_first():
    history = search().enqueue(*GOOD).run(trials=6)
    assert [t.configuration for t in history.trials.values()][:2] == GOOD
    assert [t.origin for t in history.trials.values()][:3] == ["enqueued", "enqueued", "random"]
    assert history.best.configuration == GOOD[0]
    assert history.duplicates() == 0


def test_the_queue_is_not_repeated_after_a_resume(tmp_path):
    search(tmp_path / "a").enqueue(*GOOD).run(trials=6)
    search(tmp_path / "b").enqueue(*GOOD).run(trials=1)
    search(tmp_path / "b").enqueue(*GOOD).run(trials=6, resume=True)
    whole, parts = (load_history(tmp_path / name) for name in "ab")
    assert [t.codes for t in whole.trials.values()] == [t.codes for t in parts.trials.values()]


@pytest.mark.parametrize(
    "configuration", [{"x": 2.0, "n": 4, "kind": "a"}, {"x": 0.5}, {"y": 1, **GOOD[0]}]
)
def test_what_is_not_of_the_space_cannot_be_enqueued(configuration):
    with pytest.raises(ConfigError):
        search().enqueue(configuration)


def test_trials_are_a_table_and_a_file(tmp_path):
    history = search(tmp_path).enqueue({"x": 0.5, "n": 9, "kind": "a"}, *GOOD).run(trials=5)
    table = to_dataframe(history)
    assert list(table["trial"]) == [0, 1, 2, 3, 4]
    assert list(table["status"])[:2] == ["failed", "done"]
    assert table["p:x"][1] == 0.3
    assert table["m:objective"].min() == history.best.values[0]
    assert table["failure"][0]
    with (tmp_path / "results.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["p:x"]) for row in rows] == list(table["p:x"])


def test_asked_and_told_is_what_run_would_have_tried(tmp_path):
    def error(c):
        return (c["x"] - 0.3) ** 2

    space = {"x": real(0, 1)}
    whole = Search(space, error).enqueue({"x": 0.5}).run(trials=14)
    search = Search(space, None, directory=tmp_path).enqueue({"x": 0.5})
    with search.asking() as asking:
        for _ in range(6):
            trial = asking.ask()
            asking.tell(trial, error(trial.configuration))
        left = asking.ask()
        with pytest.raises(ConfigError, match=f"trial {left.trial - 1} is not running"):
            asking.tell(trial, 1.0)
    again = Search(space, error, directory=tmp_path).enqueue({"x": 0.5})
    with again.asking(resume=True) as asking:
        first = asking.ask()
        assert (first.trial, first.configuration) == (left.trial, left.configuration)
        asking.tell(first, error(first.configuration))
        assert asking.tell(asking.ask(), ValueError("diverged")).failure == "raised"
        assert asking.tell(asking.ask(), float("nan")).failure == "not finite"
    assert again.history.trials[7].error == "ValueError: diverged"
    codes = [t.codes for t in again.history.trials.values()]
    assert codes[:8] == [t.codes for t in whole.trials.values()][:8]
    history = Search(space, error, directory=tmp_path).run(trials=12, resume=True)
    assert len(history.done) == 10
