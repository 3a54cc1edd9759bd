"""The log of a search: damage, contradictions and what it continues."""

from __future__ import annotations

import errno
import json
import os

import pytest
import search_cases as cases

from scitoolkit.core.errors import CheckpointError, ConfigError, ScitoolkitError
from scitoolkit.search import (
    RandomSearch,
    Search,
    Space,
    chain,
    integer,
    load_history,
    real,
)
from scitoolkit.search.trial_log import FILE_NAME, LogLocked, TrialLog, read_events


def test_a_second_manager_is_refused(tmp_path):
    search = Search(cases.PAPER, cases.distance, directory=tmp_path)
    search.run(trials=3)
    with TrialLog(tmp_path), pytest.raises(LogLocked, match=f"process {os.getpid()}"):
        Search(cases.PAPER, cases.distance, directory=tmp_path).run(trials=4, resume=True)


def test_a_changed_search_is_refused_with_the_difference(tmp_path):
    Search(cases.PAPER, cases.distance, directory=tmp_path, seed=1).run(trials=3)
    other = Space({"a": chain(4, [0, 16, 32], reach=2), "lr": real(1e-3, 1e-1)})
    with pytest.raises(ConfigError, match=r"space ~ a: .*space \+ lr.*seed: 1 -> 2"):
        Search(other, cases.distance, directory=tmp_path, seed=2).run(trials=4, resume=True)
    with pytest.raises(ConfigError, match="3 finished"):
        Search(cases.PAPER, cases.distance, directory=tmp_path, seed=1).run(trials=4)
    with pytest.raises(ConfigError, match="nothing to resume"):
        Search(cases.PAPER, cases.distance).run(trials=4, resume=True)


def test_a_damaged_log_is_refused(tmp_path):
    Search(cases.PAPER, cases.distance, directory=tmp_path).run(trials=5)
    path = tmp_path / FILE_NAME
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([lines[0], "garbage\n", *lines[1:]]))
    with pytest.raises(CheckpointError, match=":2"):
        load_history(tmp_path)
    path.write_text("".join(lines[1:]))
    with pytest.raises(CheckpointError, match="does not begin"):
        load_history(tmp_path)
    path.write_text("".join([lines[0], lines[2], lines[1], *lines[3:]]))
    with pytest.raises(CheckpointError, match=r"`finish` of trial 0 is damaged"):
        Search(cases.PAPER, cases.distance, directory=tmp_path).run(trials=6, resume=True)


@pytest.mark.parametrize("shared", [False, True])
def test_a_damaged_log_that_is_mended_opens_in_the_same_process(tmp_path, shared):
    def resumed(trials):
        search = Search(cases.PAPER, cases.distance, directory=tmp_path)
        return search.run(trials=trials, **({"shared": True} if shared else {"resume": True}))

    Search(cases.PAPER, cases.distance, directory=tmp_path).run(trials=5, shared=shared)
    path = tmp_path / FILE_NAME
    sound = path.read_bytes()
    path.write_bytes(sound.replace(b"{", b"#", 1))
    with pytest.raises(CheckpointError):
        resumed(7)
    path.write_bytes(sound)
    assert len(resumed(7).done) == 7


def test_a_log_that_leads_elsewhere_is_refused(tmp_path):
    Search(cases.PAPER, cases.distance, directory=tmp_path, strategy=cases.evolution()).run(
        trials=30
    )
    path = tmp_path / FILE_NAME
    lines = path.read_text().splitlines(keepends=True)
    removed = max(i for i, line in enumerate(lines) if '"finish"' in line)
    path.write_text("".join(lines[:removed] + lines[removed + 1 :]))
    with pytest.raises(CheckpointError, match="does not lead"):
        Search(cases.PAPER, cases.distance, directory=tmp_path, strategy=cases.evolution()).run(
            trials=31, resume=True
        )


def test_events_that_do_not_reach_the_disk_at_the_end_are_said(tmp_path, monkeypatch):
    def broken(file):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    log = TrialLog(tmp_path)
    monkeypatch.setattr(os, "fdatasync", broken)
    log.append([{"event": "issue", "trial": 0}])
    with pytest.raises(ScitoolkitError, match=r"cannot be written \(Input/output error\)"):
        log.close()
    monkeypatch.undo()
    TrialLog(tmp_path).close()  # nobody holds it any more


def test_the_log_holds_what_it_promises(tmp_path):
    Search(cases.PAPER, cases.distance, directory=tmp_path, strategy=cases.evolution()).run(
        trials=120
    )
    events = [json.loads(line) for line in (tmp_path / FILE_NAME).read_text().splitlines()]
    states = [e["strategy"] for e in events if e["event"] == "state"]
    assert states[-1]["rng"] == [0, 120]
    assert len(states[-1]["population"]) == 20
    finish = next(e for e in events if e["event"] == "finish")
    assert {"trial", "stage", "worker", "start", "t", "cpu", "metrics"} <= finish.keys()


def test_a_log_of_another_version_is_refused_by_name(tmp_path):
    Search(cases.PAPER, cases.distance, directory=tmp_path).run(trials=3)
    path = tmp_path / FILE_NAME
    lines = path.read_text().splitlines(keepends=True)
    header = {**json.loads(lines[0]), "version": 99}
    path.write_text("".join([json.dumps(header) + "\n", *lines[1:]]))
    with pytest.raises(CheckpointError, match=r"a log of version 99.*version 1"):
        Search(cases.PAPER, cases.distance, directory=tmp_path).run(trials=4, resume=True)
    path.write_text('{"event":"open","version":1}\n')
    with pytest.raises(CheckpointError, match="does not begin"):
        Search(cases.PAPER, cases.distance, directory=tmp_path).run(trials=4, resume=True)


def test_logs_with_rounded_reals_are_continued(tmp_path):
    """Logs of earlier versions hold reals of three digits; the space is described the same."""
    space = {"x": real(1e-4, 1e-1, log=True)}
    Search(space, lambda c: c["x"], directory=tmp_path, strategy=RandomSearch()).run(trials=3)
    path = tmp_path / FILE_NAME
    events = [json.loads(line) for line in path.read_text().splitlines()]
    for event in events:
        if event["event"] == "issue":
            event["codes"] = [float(f"{event['codes'][0]:.3g}")]
            event["values"] = {"x": event["codes"][0]}
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    search = Search(space, lambda c: c["x"], directory=tmp_path, strategy=RandomSearch())
    history = search.run(trials=6, resume=True)
    assert [t.codes for t in history.done][:3] == [
        tuple(e["codes"]) for e in events if e["event"] == "issue"
    ]
    assert len(history.done) == 6


@pytest.mark.parametrize("strategy", [RandomSearch, cases.evolution, None])
def test_a_log_is_continued_with_the_parameters_in_another_order(tmp_path, strategy):
    def value(c):
        return c["k"] + 10 * c["l"]

    orders = [["k", "l", "d"], ["l", "d", "k"], ["d", "k", "l"]]
    space = {"k": integer(0, 2), "l": integer(0, 2), "d": chain(1, ["a", "b"])}
    space |= {"d": chain(1, ["a"])}
    for count, order in zip((3, 6, 9), orders, strict=True):
        search = Search(
            {name: space[name] for name in order},
            value,
            directory=tmp_path,
            strategy=strategy and strategy(),
        )
        history = search.run(trials=count, resume=count > 3)
    for trials in (history, load_history(tmp_path)):
        values = [value(t.configuration) for t in trials.done]
        assert sorted(values) == [0, 1, 2, 10, 11, 12, 20, 21, 22]
        assert trials.duplicates() == 0
        assert [t.values[0] for t in trials.done] == values


def test_where_may_not_exclude_what_the_log_holds(tmp_path):
    def search(where):
        return Search(
            Space({"k": integer(5, 30)}, where),
            lambda c: c["k"],
            directory=tmp_path,
            strategy=RandomSearch(),
        )

    search(None).run(trials=5)
    with pytest.raises(ConfigError, match="`where` excludes configurations of the log: trial 0"):
        search(lambda c: c["k"] < 3).run(trials=6, resume=True)
    assert search(lambda c: c["k"] < 31).run(trials=6, resume=True).num_done == 6


@pytest.mark.parametrize("values", [{"k": 1, "x": 0.5}, {"k": 99, "x": 0.5}, {"k": 1}])
def test_values_that_contradict_their_codes_are_refused(tmp_path, values):
    def search():
        space = {"k": integer(0, 90), "x": real(0, 1)}
        return Search(space, lambda c: c["x"], directory=tmp_path, strategy=RandomSearch())

    search().run(trials=3)
    events = read_events(tmp_path)
    issued = [e for e in events if e["event"] == "issue"][1]
    issued["values"] = values
    (tmp_path / FILE_NAME).write_text("".join(json.dumps(e) + "\n" for e in events))
    with pytest.raises(CheckpointError, match="trial 1: the codes"):
        search().run(trials=4, resume=True)


@pytest.mark.parametrize(("value", "codes"), [(5.0, [5.0]), (-0.5, [-0.5]), (0.5, [0.5, 1])])
def test_values_outside_the_space_of_their_log_are_refused(tmp_path, value, codes):
    def search():
        return Search({"x": real(0, 1)}, abs_x, directory=tmp_path, strategy=RandomSearch())

    def abs_x(c):
        return abs(c["x"])

    search().run(trials=3)
    events = read_events(tmp_path)
    issued = [e for e in events if e["event"] == "issue"][1]
    issued["values"], issued["codes"] = {"x": value}, codes
    (tmp_path / FILE_NAME).write_text("".join(json.dumps(e) + "\n" for e in events))
    with pytest.raises(CheckpointError, match=r"trial 1: .* in its space"):
        search().run(trials=4, resume=True)


@pytest.mark.parametrize("loss", ["NaN", "Infinity"])
def test_a_log_with_an_objective_that_is_not_finite_is_refused(tmp_path, loss):
    def search():
        space = {"x": real(0, 1)}
        return Search(space, lambda c: c["x"], directory=tmp_path, strategy=RandomSearch())

    search().run(trials=3)
    events = read_events(tmp_path)
    finished = [e for e in events if e["event"] == "finish"][1]
    finished["metrics"] = {"objective": float(loss)}
    (tmp_path / FILE_NAME).write_text("".join(json.dumps(e) + "\n" for e in events))
    with pytest.raises(CheckpointError, match="`finish` of trial 1 is damaged"):
        search().run(trials=4, resume=True)
