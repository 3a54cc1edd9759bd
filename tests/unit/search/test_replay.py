"""Logs that are continued in a space that changed."""

from __future__ import annotations

import json

import numpy as np
import pytest

from scitoolkit.core.config import ConfigProblems
from scitoolkit.core.errors import CheckpointError, ConfigError
from scitoolkit.search import (
    AgingEvolution,
    GaussianProcessSearch,
    RandomSearch,
    Search,
    SuccessiveHalving,
    chain,
    choice,
    integer,
    load_history,
    real,
)
from scitoolkit.search.table import trial_rows
from scitoolkit.search.trial_log import FILE_NAME, read_events


class Line(str):
    """A string of a configuration file."""


GROWN = {
    "integer": ({"p": integer(5, 9)}, {"p": integer(-3, 30)}),
    "logarithmic integer": ({"p": integer(8, 64, log=True)}, {"p": integer(1, 512, log=True)}),
    "real": ({"p": real(0.25, 0.5)}, {"p": real(0.0, 1.0)}),
    "logarithmic real": ({"p": real(1e-3, 1e-2, log=True)}, {"p": real(1e-6, 1.0, log=True)}),
    "grid": ({"p": real(0.5, 1.0, step=0.25)}, {"p": real(0.0, 2.0, step=0.25)}),
    "choices before": ({"p": choice("b", "c")}, {"p": choice("a", "b", "c", "d")}),
    "strings of a file": ({"p": choice("b", "c")}, {"p": choice(*map(Line, "abc"))}),
    "choices of lists": ({"p": choice((8, 8), (16,))}, {"p": choice((4,), (8, 8), (16,))}),
    "chain": ({"p": chain(2, [0, 8], reach=1)}, {"p": chain(2, [4, 0, 8], reach=2)}),
    "integer to real": ({"p": integer(1, 3)}, {"p": real(0.0, 4.0)}),
    "order": ({"p": integer(5, 9)}, {"q": real(0, 1), "p": integer(5, 12)}),
}
STRATEGIES = {
    "random": RandomSearch,
    "evolution": lambda: AgingEvolution(4, 2),
    "halving": lambda: SuccessiveHalving(RandomSearch(), smallest=1, largest=4, factor=2),
    "gaussian process": lambda: GaussianProcessSearch(start=3),
}


def loss(configuration):
    return float(len(json.dumps(configuration))) + configuration["q"]


def search(space, folder, strategy="random", **more):
    whole = {"q": real(0, 1), **space} if "q" not in space else space
    return Search(whole, loss, directory=folder, strategy=STRATEGIES[strategy](), **more)


@pytest.mark.parametrize("strategy", list(STRATEGIES))
@pytest.mark.parametrize("kind", list(GROWN))
def test_a_space_may_grow_on_resume(tmp_path, kind, strategy):
    small, large = GROWN[kind]
    first = search(small, tmp_path, strategy).run(trials=6)
    again = search(large, tmp_path, strategy).run(trials=12, resume=True)
    old = [t.configuration for t in first.searched]
    assert [t.configuration for t in again.searched][:6] == json.loads(json.dumps(old))
    assert len(again.searched) == 12
    assert again.duplicates() == 0
    for trial in again.searched:
        assert json.loads(json.dumps(loss(trial.configuration))) == trial.values[0]
    # The log alone leads to the same history, and a third session continues it.
    read = load_history(tmp_path)
    assert [t.codes for t in read.searched] == [t.codes for t in again.searched]
    assert search(large, tmp_path, strategy).run(trials=14, resume=True).num_searched == 14
    # Back in the small space, the trials that it lacks are set aside.
    back = search(small, tmp_path, strategy).run(trials=16, resume=True)
    space = search(small, None).space
    inside = [t for t in back.trials.values() if not t.outside]
    assert all(space.decode(t.codes) for t in inside)
    assert back.best is not None
    assert not back.best.outside


def test_trials_outside_the_space_are_set_aside(tmp_path, caplog):
    def session(low, high, trials, **more):
        run = search({"p": integer(low, high)}, tmp_path, **more)
        return run.run(trials=trials, resume=trials > 8)

    first = session(0, 9, 8)
    fits = sum(t.configuration["p"] >= 5 for t in first.done)
    assert 0 < fits < 8
    history = session(5, 9, 20)
    assert f"{8 - fits} of 8 trials of the log are outside the changed space" in caplog.text
    assert "~ p:" in caplog.text
    assert history.num_searched == history.num_done == len(history.done) == 20
    assert all(t.configuration["p"] >= 5 for t in history.ranked())
    assert len(history.trials) == 20 + 8 - fits
    rows = [r["status"] for r in trial_rows(load_history(tmp_path))]
    assert rows.count("set aside") == 8 - fits
    # Nothing is lost: in the first space all trials count.
    assert session(0, 9, 21 + 8 - fits).num_searched == 21 + 8 - fits


def test_a_log_without_a_trial_in_the_space_belongs_to_another_search(tmp_path):
    search({"p": integer(0, 9)}, tmp_path).run(trials=3)
    before = (tmp_path / FILE_NAME).read_bytes()
    for space in ({"p": integer(50, 90)}, {"r": integer(0, 9)}, {"p": integer(0, 9), "r": [1, 2]}):
        with pytest.raises(ConfigError, match=r"belongs to another search: space [-~+]"):
            search(space, tmp_path).run(trials=5, resume=True)
    assert (tmp_path / FILE_NAME).read_bytes() == before


def test_a_grown_space_is_read_where_it_was_described(tmp_path):
    search({"p": integer(5, 9)}, tmp_path).run(trials=3)
    search({"p": integer(0, 30)}, tmp_path).run(trials=6, resume=True)
    events = read_events(tmp_path)
    (resumed,) = [e for e in events if e["event"] == "resume"]
    assert resumed["space"]["p"]["high"] == 30
    last = [e for e in events if e["event"] == "issue"][-1]
    last["codes"][1] += 1  # contradicts its values in the grown space
    (tmp_path / FILE_NAME).write_text("".join(json.dumps(e) + "\n" for e in events))
    with pytest.raises(CheckpointError, match="trial 5: the codes"):
        search({"p": integer(0, 30)}, tmp_path).run(trials=7, resume=True)
    with pytest.raises(CheckpointError, match="trial 5: the codes"):
        load_history(tmp_path)


@pytest.mark.parametrize(
    "value", [np.int64(3), np.int8(3), np.float32(3), np.array(3), 3, 3.0], ids=repr
)
def test_numbers_of_numpy_are_values_of_a_space(tmp_path, value):
    space = {
        "p": choice(1, 3),
        "i": integer(1, 5),
        "r": real(0, 5),
        "w": choice(8, 9, when={"p": value}),
    }
    run = Search(space, lambda c: c["r"], directory=tmp_path, strategy=RandomSearch())
    run.enqueue({"p": value, "i": value, "r": value, "w": np.int32(9)})
    (trial,) = run.run(trials=1).done
    assert trial.configuration == {"p": 3, "i": 3, "r": 3.0, "w": 9}
    assert load_history(tmp_path).done[0].configuration == trial.configuration


@pytest.mark.parametrize("values", [{1, 2}, (v for v in (1, 2)), np.eye(2).dtype, [1, {3}]])
def test_a_value_that_json_cannot_hold_is_named(values):
    name = type(values[1] if isinstance(values, list) else values).__name__
    with pytest.raises(ConfigProblems, match=rf"is a {name} \(for its elements"):
        Search({"p": values}, loss)


def test_ranges_and_arrays_are_lists_of_values():
    for values in (range(2, 8, 2), np.arange(2, 8, 2), np.array([2, 4, 6], np.int8)):
        parameter = Search({"p": values}, loss).space.parameters["p"]
        assert json.dumps(parameter.describe()) == '{"values": [2, 4, 6]}'
    rows = Search({"p": np.eye(2)}, loss).space.parameters["p"]
    assert rows.describe() == {"values": [[1.0, 0.0], [0.0, 1.0]]}
