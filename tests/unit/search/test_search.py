from __future__ import annotations

import random

import numpy as np
import pytest
import search_cases as cases

from scitoolkit.core.errors import ConfigError, ScitoolkitError
from scitoolkit.search import (
    AgingEvolution,
    Objective,
    RandomSearch,
    Search,
    Simulated,
    Space,
    SuccessiveHalving,
    integer,
    load_history,
    real,
)
from scitoolkit.search.history import same_history
from scitoolkit.search.trial_log import FILE_NAME, read_events


def simulated(evaluate, workers=8, charge=False):
    return Simulated(
        evaluate, workers, lambda t: random.Random(t.trial).uniform(1, 3), charge=charge
    )


def test_evolution_beats_random_repeats_nothing_and_is_a_function_of_the_seed():
    def run(strategy, seed=0):
        search = Search(cases.PAPER, cases.distance, strategy=strategy, seed=seed)
        return search.run(trials=300, workers=simulated(cases.distance))

    evolved = [run(cases.evolution(), seed) for seed in range(3)]
    sampled = [run(RandomSearch(), seed) for seed in range(3)]
    assert all(h.duplicates() == 0 and len(h.done) == 300 for h in [*evolved, *sampled])
    assert max(h.best.values for h in evolved) < min(h.best.values for h in sampled)
    assert same_history(run(cases.evolution()), evolved[0])
    assert not same_history(evolved[0], evolved[1])


def test_the_busy_share_of_many_workers_is_high():
    search = Search(cases.PAPER, cases.distance, strategy=cases.evolution())
    history = search.run(seconds=60.0, workers=simulated(cases.distance, 32))
    assert history.busy_share(until=60.0) > 0.99
    assert history.clock < 63.0


class Crash(BaseException):
    """Ends the process's work as a kill would: nothing is caught or written after it."""


@pytest.mark.parametrize("strategy", ["evolution", "halving"])
def test_a_search_that_crashes_anywhere_goes_on_as_if_it_had_not(tmp_path, strategy):
    def make():
        base = AgingEvolution(8, 3)
        return SuccessiveHalving(base, 1, 9) if strategy == "halving" else base

    def search(folder):
        return Search(cases.PAPER, cases.distance, directory=folder, strategy=make(), seed=3)

    whole = search(tmp_path / "whole").run(trials=60)
    rng, crashes = random.Random(0), 0
    folder = tmp_path / "broken"
    while True:
        left = rng.randrange(1, 12)

        def crashing(configuration, trial):
            nonlocal left
            left -= 1
            if left == 0:
                raise Crash
            return cases.distance(configuration, trial)

        attempt = Search(cases.PAPER, crashing, directory=folder, strategy=make(), seed=3)
        try:
            attempt.run(trials=60, resume=crashes > 0)
            break
        except Crash:
            crashes += 1
            _cut_a_random_part_of_the_last_line(folder / FILE_NAME, rng)
    assert crashes >= 5
    assert same_history(load_history(folder), whole)
    finished = [(e["trial"], e["stage"]) for e in read_events(folder) if e["event"] == "finish"]
    assert len(finished) == len(set(finished))


def _cut_a_random_part_of_the_last_line(path, rng):
    """What a crash in the middle of a write leaves behind."""
    text = path.read_bytes()
    path.write_bytes(text + b'{"event":"finish","tri'[: rng.randrange(0, 20)])


def test_trials_in_flight_go_on_from_their_last_epoch(tmp_path):
    space = {"x": integer(0, 9)}
    left = 4

    def crashing(configuration, trial):
        nonlocal left
        left -= 1
        if left == 0:
            (trial.directory / "epoch").write_text("4")
            raise Crash
        return cases.counts_epochs(configuration, trial)

    with pytest.raises(Crash):
        Search(space, crashing, directory=tmp_path, strategy=RandomSearch()).run(trials=6)
    again = Search(space, cases.counts_epochs, directory=tmp_path, strategy=RandomSearch())
    history = again.run(trials=6, resume=True)
    assert [t.metrics["first"] for t in history.trials.values()] == [0, 0, 0, 4, 0, 0]


def test_successive_halving_continues_the_best_from_their_checkpoints(tmp_path):
    strategy = SuccessiveHalving(RandomSearch(), smallest=1, largest=9)
    search = Search(
        {"x": integer(0, 26)}, cases.counts_epochs, directory=tmp_path, strategy=strategy, keep=3
    )
    history = search.run(trials=27)
    assert strategy.budgets == [1, 3, 9]
    reached = [t.reached for t in history.done]
    assert reached.count(2) >= 2
    assert reached.count(0) >= 15
    assert history.best.configuration["x"] == 3
    longest = [t for t in history.done if t.reached == 2]
    assert all(t.metrics["first"] == 3 for t in longest)
    assert all([row["epoch"] for row in t.epochs] == list(range(1, 10)) for t in longest)
    assert len(list((tmp_path / "trials").iterdir())) == 3


def test_limits_on_cost_are_kept_beforehand_and_contradictions_are_said():
    def cost(configuration):
        return {"parameters": sum(configuration["a"]["nodes"])}

    objectives = ["objective", Objective("parameters", limit=150)]
    search = Search(
        cases.PAPER, cases.distance, strategy=cases.evolution(), objectives=objectives, cost=cost
    )
    history = search.run(trials=100)
    assert max(t.metrics["parameters"] for t in history.done) <= 150
    front = [t.values for t in history.front()]
    assert front == sorted(front)
    assert [v[1] for v in front] == sorted((v[1] for v in front), reverse=True)
    objectives = ["objective", Objective("parameters", limit=-1)]
    search = Search(cases.PAPER, cases.distance, objectives=objectives, cost=cost)
    with pytest.raises(ConfigError, match="limits on cost"):
        search.run(trials=5)


def test_large_is_good_when_asked(tmp_path):
    search = Search(
        {"x": integer(0, 30)},
        lambda c: c["x"],
        strategy=AgingEvolution(5, 2),
        objectives=[Objective("objective", "max")],
    )
    assert search.run(trials=25).best.configuration["x"] > 25


@pytest.mark.multiproc
def test_every_kind_of_failure_is_recorded_and_the_search_goes_on(tmp_path):
    kinds = ["raises", "dies", "full disk", "nan", "nothing", "text"]
    search = Search(
        {"kind": [*kinds, "fine"], "x": [1.0]},
        cases.misbehave,
        directory=tmp_path,
        strategy=RandomSearch(),
    )
    history = search.run(trials=7, workers=2)
    found = {t.configuration["kind"]: t.failure for t in history.trials.values()}
    assert found == {
        "raises": "raised",
        "dies": "worker died",
        "full disk": "disk",
        "nan": "not finite",
        "nothing": "no result",
        "text": "no result",
        "fine": "",
    }
    errors = {t.configuration["kind"]: t.error for t in history.trials.values()}
    assert "ValueError: as asked" in errors["raises"]
    assert "SIGKILL" in errors["dies"]
    assert load_history(tmp_path).failures() == history.failures()


@pytest.mark.multiproc
def test_workers_have_few_threads_and_a_gpu_each():
    search = Search({"x": integer(0, 9)}, cases.says_environment, strategy=RandomSearch())
    history = search.run(trials=4, workers=2, threads=3, gpus=[5, 7])
    assert {t.metrics["objective"] for t in history.done} == {3.0}
    assert {t.metrics["gpu"] for t in history.done} <= {5.0, 7.0}


def test_a_search_that_only_fails_gives_up():
    def fails(configuration):
        raise RuntimeError("always")

    with pytest.raises(ScitoolkitError, match=r"first 10 trials have all failed.*always"):
        Search(cases.PAPER, fails).run(trials=100)


def test_an_evaluation_that_cannot_be_sent_is_refused():
    with pytest.raises(ConfigError, match="top of a module"):
        Search(cases.PAPER, lambda c: 1.0).run(trials=3, workers=2)


def test_finalists_are_ranked_by_their_mean_over_new_seeds(tmp_path):
    def noisy(configuration, trial):
        noise = random.Random(trial.seed).gauss(0, 1.0)
        return {"objective": configuration["x"] + noise}

    search = Search({"x": integer(0, 50)}, noisy, directory=tmp_path, strategy=RandomSearch())
    history = search.run(trials=40, retrain=(5, 4))
    finalists = history.finalists()
    assert [row["seeds"] for row in finalists] == [4] * 5
    assert [row["mean"] for row in finalists] == sorted(row["mean"] for row in finalists)
    assert all(row["spread"] > 0.1 for row in finalists)
    assert len(history.done) == 40
    again = Search({"x": integer(0, 50)}, noisy, directory=tmp_path, strategy=RandomSearch())
    assert same_history(again.run(trials=40, retrain=(5, 4), resume=True), history)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"evaluate": 3}, "evaluate is 3"),
        ({"objectives": "loss"}, "a list"),
        ({"objectives": []}, "a list"),
        ({"objectives": {"accuracy": "max"}}, "a list"),
        ({"objectives": {"a", "b"}}, "a list"),
        ({"objectives": ["a", "a"]}, "named twice"),
        ({"seed": 0.5}, "seed is 0.5"),
        ({"keep": -1}, "keep is -1"),
    ],
)
def test_unusable_arguments_are_refused_before_anything_runs(arguments, said):
    with pytest.raises(ConfigError, match=said):
        Search({"x": [1, 2]}, **{"evaluate": abs, **arguments})


class NoNumber:
    """As a tensor with several elements."""

    def __float__(self):
        raise RuntimeError("cannot be converted to a scalar")


def test_integers_of_numpy_are_integers():
    search = Search({"x": range(9)}, lambda c: c["x"], seed=np.int64(3), patience=np.int32(4))
    assert len(search.run(trials=np.int64(2), workers=np.int64(1)).done) == 2


@pytest.mark.parametrize(
    "budget", [{"trials": 0}, {"trials": 2.5}, {"seconds": 0}, {"workers": "2"}, {"workers": 0}]
)
def test_unusable_budgets_are_refused(budget):
    with pytest.raises(ConfigError, match=next(iter(budget))):
        Search({"x": [1, 2]}, lambda c: 1.0).run(**budget)


def test_an_unknown_direction_is_not_taken_for_max():
    with pytest.raises(ConfigError, match="direction 'minimize'"):
        Objective("loss", "minimize")
    with pytest.raises(ConfigError, match="limit nan"):
        Objective("loss", limit=float("nan"))


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (float("nan"), "not finite"),
        ("good", "no result.*'good'"),
        ("0.5", "no result.*'0.5'"),
        ({"rmse": 1.0}, "no result: no metric objective among rmse"),
        ({}, "no result"),
        (None, "no result"),
        ([1.0, 2.0], "no result"),
        (10**400, "no result"),
        (NoNumber(), "no result"),
    ],
)
def test_a_search_without_any_result_says_why(returned, said):
    with pytest.raises(ScitoolkitError, match=f"all 3 trials have all failed.*{said}"):
        Search({"x": [1, 2, 3]}, lambda c: returned).run(trials=3)


def test_nine_failures_of_ten_are_survived_and_said(caplog):
    def mostly_fails(configuration):
        if configuration["x"] > 0.1:
            raise ValueError("diverged")
        return configuration["x"]

    search = Search({"x": real(0.0, 1.0)}, mostly_fails, seed=3, strategy=RandomSearch())
    history = search.run(trials=40)
    assert len(history.done) + history.num_failed == 40
    assert history.best.values[0] <= 0.1
    assert "more trials failed than succeeded" in caplog.text


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_only_objectives_and_limits_have_to_be_finite(tmp_path, value):
    def search(evaluate, *objectives):
        return Search(
            {"x": real(0, 1)},
            evaluate,
            objectives=[Objective("loss"), *objectives],
            directory=tmp_path / str(len(objectives)),
        )

    def evaluate(c):
        return {"loss": c["x"], "r2": value}

    first = search(evaluate).run(trials=5)
    assert first.num_done == 5
    assert {t.metrics["r2"] for t in first.done} == {None}
    again = search(evaluate).run(trials=6, resume=True)
    assert again.num_done == 6
    assert same_history(again, load_history(tmp_path / "0"))
    with pytest.raises(ScitoolkitError, match="not finite"):
        search(evaluate, Objective("r2", limit=1.0, constraint=True)).run(trials=5)
    assert not Objective("r2", limit=1.0).within({"r2": float("nan")})


def test_a_cost_that_is_no_number_satisfies_no_limit():
    search = Search(
        {"x": integer(0, 9)},
        lambda c: {"objective": c["x"]},
        objectives=["objective", Objective("size", limit=1.0, constraint=True)],
        cost=lambda c: {"size": float("nan") if c["x"] < 5 else 0.5},
    )
    assert min(t.configuration["x"] for t in search.run(trials=5).done) == 5


def test_a_raising_where_names_the_configuration():
    space = Space({"a": [1, 2], "b": {"values": [3], "when": {"a": [1]}}}, lambda c: c["b"] > 0)
    with pytest.raises(ConfigError, match=r"`where` raised KeyError: 'b' for \{'a': 2\}"):
        space.allows(space.encode({"a": 2}))


def test_patience_is_a_setting():
    def evaluate(c):
        if c["k"] < 15:
            raise ValueError("infeasible")
        return c["k"]

    def search(**more):
        space = {"k": integer(0, 19)}
        return Search(space, evaluate, strategy=RandomSearch(), seed=3, **more)

    history = search(patience=20).run(trials=20)
    assert history.num_done == 5
    with pytest.raises(ScitoolkitError, match="patience"):
        search(patience=2).run(trials=20)
    with pytest.raises(ConfigError, match="patience"):
        search(patience=0)


@pytest.mark.parametrize("code", [0, 1, "text"])
def test_a_trial_that_exits_fails_alone(code):
    def evaluate(c):
        if c["k"] == 1:
            raise SystemExit(code)
        return c["k"]

    history = Search({"k": integer(0, 3)}, evaluate).run()
    assert history.num_done == 3
    assert history.failures() == {"raised": 1}


@pytest.mark.parametrize("scale", [1e-100, 1e90, 1e150, 1e250, 1e307])
def test_losses_of_any_scale_are_modelled(scale):
    def evaluate(c):
        return scale * ((c["x"] - 0.3) ** 2 + (c["y"] - 0.6) ** 2)

    history = Search({"x": real(0, 1), "y": real(0, 1)}, evaluate).run(trials=40)
    assert history.best.values[0] < 1e-3 * scale


def test_a_reported_epoch_may_hold_values_that_are_not_finite(tmp_path):
    def evaluate(c, trial):
        trial.report(1, loss=float("nan"))
        return c["k"]

    Search({"k": integer(0, 2)}, evaluate, directory=tmp_path).run()
    assert load_history(tmp_path).trials[0].epochs == [{"epoch": 1.0, "loss": None}]
