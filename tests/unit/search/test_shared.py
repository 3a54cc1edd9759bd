"""Several managers on one log."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from collections import Counter

import pytest

from scitoolkit.core.errors import ConfigError
from scitoolkit.search import (
    AgingEvolution,
    GaussianProcessSearch,
    RandomSearch,
    Search,
    SuccessiveHalving,
    integer,
    load_history,
    real,
)
from scitoolkit.search.history import same_history
from scitoolkit.search.trial_log import FILE_NAME, LogLocked, read_events

SPACE = {"x": real(0, 1), "y": real(0, 1), "k": integer(0, 3)}
STRATEGIES = {
    "random": RandomSearch,
    "evolution": lambda: AgingEvolution(6, 3),
    "gaussian process": lambda: GaussianProcessSearch(start=4),
    "halving": lambda: SuccessiveHalving(RandomSearch(), smallest=1, largest=4, factor=2),
}


def bowl(configuration, trial):
    time.sleep(0.005)
    c = configuration
    return (c["x"] - 0.3) ** 2 + (c["y"] - 0.6) ** 2 + c["k"] + 1 / (trial.budget or 9)


def manage(folder, strategy, **more):
    return Search(SPACE, bowl, directory=folder, strategy=STRATEGIES[strategy]()).run(
        shared=True, **more
    )


def in_threads(count, function):
    results, errors = [], []

    def call():
        try:
            results.append(function())
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=call) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    return results


@pytest.mark.parametrize(
    ("strategy", "managers"), list(zip(STRATEGIES, (2, 4, 3, 2), strict=True)), ids=str
)
def test_managers_share_the_trials_and_repeat_none(tmp_path, strategy, managers):
    histories = in_threads(managers, lambda: manage(tmp_path, strategy, trials=24, retrain=(2, 3)))
    read = load_history(tmp_path)
    assert read.num_searched == len(read.done) == 24
    assert read.duplicates() == 0
    assert all(same_history(history, read) for history in histories)
    assert [row["seeds"] for row in read.finalists()] == [3, 3]
    shares = Counter(t.manager for t in read.searched)
    assert len(shares) == managers
    assert min(shares.values()) >= 2
    assert list((tmp_path / "managers").iterdir()) == []
    # One manager continues what several began, and several what one began.
    alone = Search(SPACE, bowl, directory=tmp_path, strategy=STRATEGIES[strategy]())
    assert alone.run(trials=26, resume=True).num_searched == 26
    in_threads(managers, lambda: manage(tmp_path, strategy, trials=32))
    assert load_history(tmp_path).num_searched == 32


def test_a_manager_alone_has_the_history_of_an_unshared_search(tmp_path):
    for strategy, make in STRATEGIES.items():
        whole = Search(SPACE, bowl, strategy=make()).run(trials=12)
        manage(tmp_path / strategy, strategy, trials=5)
        assert same_history(manage(tmp_path / strategy, strategy, trials=12), whole), strategy


def slow(configuration, trial):
    (trial.directory / f"begun by {os.getpid()}").write_text("")
    time.sleep(0.3 if trial.resumed else 60)
    return configuration["x"]


def quick(configuration, trial):
    return slow(configuration, trial) if trial.resumed else configuration["x"]


def be_killed(folder):
    Search(SPACE, slow, directory=folder, strategy=RandomSearch()).run(trials=9, shared=True)


@pytest.mark.multiproc
def test_the_trials_of_a_killed_manager_are_taken_over(tmp_path):
    context = multiprocessing.get_context("spawn")
    doomed = context.Process(target=be_killed, args=(tmp_path,))
    doomed.start()
    until = time.monotonic() + 60
    while not list(tmp_path.glob("trials/*/begun*")) and time.monotonic() < until:
        time.sleep(0.05)
    searching = Search(SPACE, quick, directory=tmp_path, strategy=RandomSearch())
    (first,) = [e for e in read_events(tmp_path) if e["event"] == "issue"]
    threading.Timer(1.0, lambda: os.kill(doomed.pid, signal.SIGKILL)).start()
    began = time.monotonic()
    history = searching.run(trials=9, shared=True)
    doomed.join()
    assert time.monotonic() - began > 0.9, "a living manager keeps its trial"
    assert history.num_done == history.num_searched == 9
    taken = history.trials[first["trial"]]
    assert taken.status == "done"
    assert taken.manager != first["manager"]
    assert [e["trial"] for e in read_events(tmp_path) if e["event"] == "adopt"] == [0]
    assert len(list(tmp_path.glob("trials/000000/begun*"))) in (0, 2)  # the best few are retained


def test_a_line_that_a_killed_manager_left_incomplete_is_dropped(tmp_path):
    manage(tmp_path, "random", trials=4)
    path = tmp_path / FILE_NAME
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"event":"issue","trial":4,"sta')
    assert manage(tmp_path, "random", trials=6).num_done == 6
    assert path.read_bytes().startswith(whole)
    assert all(json.loads(line) for line in path.read_text().splitlines())


def test_shared_and_unshared_managers_refuse_each_other(tmp_path):
    def asking(**more):
        search = Search(SPACE, None, directory=tmp_path, strategy=RandomSearch())
        return search.asking(**more)

    with asking(shared=True) as first, asking(shared=True) as second:
        tasks = [first.ask(), second.ask(), first.ask()]
        assert [task.trial for task in tasks] == [0, 1, 2]
        second.tell(tasks[1], 0.5)
        assert first.tell(tasks[0], 0.25).id == 0
        with pytest.raises(ConfigError, match="trial 0 is not running"):
            second.tell(tasks[0], 0.1)
        with pytest.raises(LogLocked, match="shared=True"), asking(resume=True):
            pass
    with asking(resume=True) as alone:
        assert alone.ask().trial == 2  # unfinished
        with pytest.raises(LogLocked), asking(shared=True):
            pass
    with pytest.raises(ConfigError, match="nothing to share"):
        Search(SPACE, bowl).run(trials=3, shared=True)
    other = Search({**SPACE, "k": integer(0, 9)}, bowl, directory=tmp_path, strategy=RandomSearch())
    with pytest.raises(ConfigError, match=r"another search: space ~ k"):
        other.run(trials=4, shared=True)
    seeds = Search(SPACE, bowl, directory=tmp_path, strategy=RandomSearch(), seed=3)
    with pytest.raises(ConfigError, match="seed: 0 -> 3"):
        seeds.run(trials=4, shared=True)
