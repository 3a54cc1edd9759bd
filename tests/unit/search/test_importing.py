"""Finished trials of other programs inform a search."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.search import (
    AgingEvolution,
    GaussianProcessSearch,
    Objective,
    RandomSearch,
    Search,
    Space,
    SuccessiveHalving,
    chain,
    choice,
    integer,
    load_history,
    real,
    to_dataframe,
)

SPACE = {
    "lr": real(1e-5, 1e-1, log=True),
    "depth": integer(1, 6),
    "head": choice("linear", "decoder"),
    "width": integer(16, 128, step=16, when={"head": ["decoder"]}),
    "flag": choice(True, False, None),
    "sizes": choice((8, 8), (16,)),
    "net": chain(2, [0, 8], reach=1),
}


def loss(c):
    return (c["depth"] - 4) ** 2 + abs(np.log10(c["lr"]) + 3) + c.get("width", 200) / 1000


def earlier(folder, space=SPACE, **more):
    more = {"strategy": RandomSearch(), "seed": 5, **more}
    return Search(space, lambda c: float(loss(c)), directory=folder, **more).run(trials=15)


def configurations(history):
    return [t.configuration for t in history.done if t.origin == "imported"]


@pytest.mark.parametrize("form", ["file", "history", "frame", "pairs", "read"])
def test_trials_of_another_search_are_imported_whole(tmp_path, form):
    history = earlier(tmp_path / "old")
    frame = to_dataframe(history)
    sources = {
        "file": tmp_path / "old" / "results.csv",
        "history": history,
        "frame": frame,
        "pairs": [(t.configuration, t.values[0]) for t in history.done],
        "read": load_history(tmp_path / "old"),
    }
    fresh = Search(SPACE, loss, directory=tmp_path / "new").import_trials(sources[form])
    again = fresh.run(trials=4)
    theirs = load_history(tmp_path / "old").done
    assert configurations(load_history(tmp_path / "new")) == [t.configuration for t in theirs]
    assert [t.values for t in again.done[:15]] == [t.values for t in history.done]
    # Four more trials, none of them a repetition; a resumed search imports nothing twice.
    assert (again.num_searched, len(again.done), again.duplicates()) == (4, 19, 0)
    resumed = Search(SPACE, loss, directory=tmp_path / "new").import_trials(sources[form])
    assert len(resumed.run(trials=6, resume=True).done) == 21


@pytest.mark.parametrize("strategy", [RandomSearch, lambda: AgingEvolution(5, 2), None])
def test_imported_trials_steer_the_search(tmp_path, strategy):
    space = {"x": real(0, 1), "y": real(0, 1)}

    def bowl(c):
        return (c["x"] - 0.3) ** 2 + (c["y"] - 0.6) ** 2

    old = Search(space, bowl, seed=7).run(trials=25)
    run = Search(space, bowl, strategy=strategy and strategy()).import_trials(old)
    history = run.run(trials=3)
    assert history.best.values <= old.best.values
    new = [t for t in history.done if t.origin != "imported"]
    if strategy is None:  # the model begins with the imported trials, not with its start design
        assert {t.origin for t in new} <= {"region", "global"}
        assert max(bowl(t.configuration) for t in new) < 0.2
    if strategy is not None and strategy is not RandomSearch:
        assert {t.origin for t in new} == {"mutation"}


@pytest.mark.parametrize("directions", [["minimize"], ["maximize"], ["minimize", "maximize"]])
def test_a_study_of_optuna_is_imported_in_its_directions(directions):
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.ERROR)

    def objective(trial):
        trial.suggest_float("lr", 1e-5, 1e-1, log=True)
        depth = trial.suggest_int("depth", 1, 6)
        if trial.suggest_categorical("head", ["linear", "decoder"]) == "decoder":
            trial.suggest_int("width", 16, 128, step=16)
        trial.suggest_categorical("flag", [True, False, None])
        trial.set_user_attr("memory", 2.0 * depth)
        if depth == 6:
            raise ValueError("as asked")
        if depth == 1 and len(directions) == 1:
            raise optuna.TrialPruned
        return [float(depth), float(-depth)][: len(directions)]

    study = optuna.create_study(
        directions=directions, sampler=optuna.samplers.RandomSampler(seed=1)
    )
    study.optimize(objective, n_trials=30, catch=(ValueError,))
    space = {name: SPACE[name] for name in ("lr", "depth", "head", "width", "flag")}
    objectives = [Objective(f"o{i}", d[:3]) for i, d in enumerate(directions)]
    more = [Objective("memory", limit=6, constraint=True)]
    run = Search(space, lambda c: None, objectives=objectives + more, patience=50)
    history = run.import_trials(study).run(trials=1)
    states = [t.state.name for t in study.trials]
    assert len(history.done) == states.count("COMPLETE") > 5
    assert history.failures()["imported"] == states.count("FAIL") > 0
    assert history.best.metrics["memory"] <= 6
    depths = [t.configuration["depth"] for t in history.done]
    best = history.best.configuration["depth"]
    assert best == (
        max(d for d in depths if d <= 3) if directions[0] == "maximize" else min(depths)
    )
    for wrong in ([], ["max", "max"], ["max" if directions[0] == "minimize" else "min"]):
        named = [Objective(f"o{i}", d) for i, d in enumerate(wrong or ["min"] * 3)]
        with pytest.raises(ConfigError, match="the study has the directions"):
            Search(space, None, objectives=named).import_trials(study)
    with pytest.raises(ConfigError, match="no metric seconds"):
        Search(
            space, None, objectives=[*objectives, Objective("seconds", limit=1, constraint=True)]
        ).import_trials(study)


def write(path, rows):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(dict.fromkeys(name for row in rows for name in row)))
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.mark.parametrize("objectives", [1, 2])
def test_results_of_deephyper_are_maximised_and_its_failures_are_known(tmp_path, objectives):
    names = ["objective"] if objectives == 1 else ["objective_0", "objective_1"]
    rows = [
        {"p:lr": 10.0**-k, "p:depth": k, "p:head": "linear", "p:width": 16}
        | {name: "F_memory" if k == 2 else -abs(k - 4.0) for name in names}
        | {"job_id": k, "job_status": "DONE", "m:timestamp_submit": 0.5 * k, "m:host": "a"}
        for k in range(2, 6)
    ]
    path = write(tmp_path / "results.csv", rows)
    space = {name: SPACE[name] for name in ("lr", "depth", "head", "width")}
    highest = [Objective(f"score{i}", "max") for i in range(objectives)]
    history = Search(space, lambda c: None, objectives=highest).import_trials(path).run(trials=1)
    assert len(history.done) == 3
    assert history.failures()["imported"] == 1
    assert history.best.configuration == {"lr": 1e-4, "depth": 4, "head": "linear"}
    assert history.best.metrics["timestamp_submit"] == 2.0
    lowest = [Objective(f"score{i}") for i in range(objectives)]
    with pytest.raises(ConfigError, match=r"maximises.*Objective\('score0', 'max'\)"):
        Search(space, None, objectives=lowest).import_trials(path)


def test_a_table_of_any_program_is_read_by_its_columns(tmp_path, caplog):
    rows = [
        {"depth": "3.0", "flag": "true", "mode": "8", "rate": "1E-3", "error": "0.5", "note": "x"},
        {"depth": "4", "flag": "", "mode": "16", "rate": ".01", "error": "0.25", "note": ""},
        {"depth": "9", "flag": "False", "mode": "8", "rate": "1", "error": "0.1", "note": ""},
        {"depth": "5", "flag": "False", "mode": "8", "rate": "0.5", "error": "", "note": ""},
        {"depth": "4", "flag": "", "mode": "16", "rate": "1e-2", "error": "7", "note": "again"},
    ]
    space = Space(
        {
            "depth": integer(1, 6),
            "flag": [True, False, None],
            "mode": ["8", "16"],
            "rate": real(1e-4, 1, log=True),
        },
        where=lambda c: c["depth"] < 6,
    )
    path = write(tmp_path / "runs.csv", rows)
    run = Search(space, None, objectives=["error"]).import_trials(path)
    with run.asking():
        assert [t.configuration for t in run.history.ranked()] == [
            {"depth": 4, "flag": None, "mode": "16", "rate": 0.01},
            {"depth": 3, "flag": True, "mode": "8", "rate": 0.001},
        ]
    assert "1 trials are outside the space; trial 2: depth: 9" in caplog.text


@pytest.mark.parametrize(
    ("source", "error", "said"),
    [
        ("nowhere.csv", DataError, "cannot be read"),
        (3, ConfigError, "pairs"),
        ([({"x": 9}, 1.0)], DataError, r"none of 1.*x: 9"),
        ([({"z": 0.5}, 1.0)], DataError, "not in the space"),
        ([({"x": 0.5}, {"other": 1.0})], ConfigError, "no metric objective"),
        ([], DataError, "none of 0"),
    ],
)
def test_sources_that_cannot_be_used_are_refused(source, error, said):
    with pytest.raises(error, match=said):
        Search({"x": real(0, 1)}, None).import_trials(source)


def test_a_table_without_a_column_is_refused_and_halving_too(tmp_path):
    path = write(tmp_path / "t.csv", [{"x": 0.5, "objective": 1.0}])
    with pytest.raises(ConfigError, match="no column y"):
        Search({"x": real(0, 1), "y": real(0, 1)}, None).import_trials(path)
    with pytest.raises(ConfigError, match="no column loss"):
        Search({"x": real(0, 1)}, None, objectives=["loss"]).import_trials(path)
    halving = SuccessiveHalving(GaussianProcessSearch(), smallest=1, largest=9)
    with pytest.raises(ConfigError, match="halving"):
        Search({"x": real(0, 1)}, None, strategy=halving).import_trials(path)
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00x,y\n")
    with pytest.raises(DataError, match="CSV"):
        Search({"x": real(0, 1)}, None).import_trials(tmp_path / "b.csv")
    (tmp_path / "c.csv").write_text("x,loss,x\n0.1,1.0,0.2\n")
    with pytest.raises(DataError, match="column 'x' twice"):
        Search({"x": real(0, 1)}, None, objectives=["loss"]).import_trials(tmp_path / "c.csv")
