from __future__ import annotations

import random

import pytest
import search_cases as cases

from scitoolkit.core.errors import ScitoolkitError
from scitoolkit.core.results import Diagram, Parallel, Points, Results
from scitoolkit.reporting.plots import draw_plot
from scitoolkit.reporting.style import to_png
from scitoolkit.search import (
    AgingEvolution,
    History,
    RandomSearch,
    Search,
    Simulated,
    Space,
    chain,
    choice,
    real,
)
from scitoolkit.search.pareto import best_of, crowding, dominates, pareto_front, ranks
from scitoolkit.search.results import importance, search_results

SPACE = Space(
    {
        "a": chain(3, [0, 16, 48], reach=2),
        "lr": real(1e-4, 1e-1, log=True),
        "head": ["x", "y"],
        "forcing": choice(1.0, 2.0, when={"head": ["y"]}),
    }
)


def searched(trials: int, **more) -> History:
    search = Search(
        SPACE,
        cases.distance,
        strategy=AgingEvolution(10, 3),
        objectives=["objective", "parameters"],
    )
    simulated = Simulated(cases.distance, 4, lambda t: 1.0 + t.trial % 3, charge=False)
    return search.run(trials=trials, workers=simulated, **more)


def test_all_that_was_found_can_be_drawn_and_read_back(tmp_path):
    results = search_results(searched(60, retrain=(2, 3)), SPACE, title="demo")
    kinds = {figure.kind for figure in results.figures}
    assert kinds == {"points", "lines", "bars", "parallel", "diagram"}
    for figure in results.figures:
        assert to_png(draw_plot(figure)).startswith(b"\x89PNG")
    results.write(tmp_path)
    assert Results.read(tmp_path) == results
    assert results.metrics["duplicates"] == 0
    assert results.metrics["busy_share"] > 0.9
    assert [t.title for t in results.tables] == ["Finalists", "Best trials"]


def test_best_trials_are_objectives_and_the_parameters_that_differ():
    space = Space({"model.fixed": [7], "lr": real(1e-4, 1e-1, log=True), "head": ["x", "y"]})

    def evaluate(configuration):
        return {"objective": configuration["lr"], "other": 1.0, "parameters": 5}

    history = Search(space, evaluate, strategy=RandomSearch(), objectives=["objective"]).run(
        trials=12
    )
    (table,) = search_results(history, space).tables
    assert table.columns == ["trial", "objective", "wall (s)", "origin", "configuration"]
    assert len(table.rows) == 10
    assert all("fixed" not in row[-1] and "lr=" in row[-1] for row in table.rows)
    assert "The same in all rows: fixed=7" in table.note
    (alone,) = search_results(
        Search(space, evaluate, strategy=RandomSearch(), objectives=["objective"]).run(trials=1),
        space,
    ).tables
    assert "fixed=7" in alone.rows[0][-1]


def test_a_finalist_with_one_new_seed_has_no_noise():
    results = search_results(searched(20, retrain=(2, 1)), SPACE)
    (won,) = [text for text in results.summary if " won: " in text]
    assert "retrained with one new seed, so the noise of seeds is unknown" in won
    assert "deviation" not in won
    assert "than that noise" not in won
    assert results.metrics["seed_spread"] is None
    assert results.tables[0].rows[0][2] is None
    assert "(one seed)" in results.verdict.sentence
    assert not results.verdict.tie
    three = search_results(searched(20, retrain=(2, 3)), SPACE)
    assert "the mean over 3 new seeds with standard deviation" in " ".join(three.summary)


@pytest.mark.parametrize("trials", [1, 3])
def test_a_search_that_has_just_begun_can_be_reported(trials):
    results = search_results(searched(trials), SPACE)
    for figure in results.figures:
        draw_plot(figure)


def test_a_search_without_a_result_can_be_reported():
    search = Search({"kind": ["raises"], "x": [1.0, 2.0]}, cases.misbehave, strategy=RandomSearch())
    with pytest.raises(ScitoolkitError, match="all 2 trials have all failed"):
        search.run(trials=2)
    results = search_results(search.history, search.space)
    assert [t.title for t in results.tables] == ["Failures"]
    assert "2 trials failed: 2 raised." in results.summary


def test_importance_finds_what_matters():
    space = Space({"big": [0, 1, 2], "small": [0, 1], "none": list(range(5)), "r": real(0, 1)})

    def evaluate(configuration):
        return 10 * configuration["big"] + configuration["small"] + 3 * configuration["r"]

    history = Search(space, evaluate, strategy=RandomSearch()).run(trials=200)
    shares = importance(history, space)
    assert next(iter(shares)) == "big"
    assert shares["big"] > 0.7
    assert shares["none"] < 0.05
    assert shares["r"] > shares["none"]


def test_pareto_agrees_with_the_definition():
    rng = random.Random(0)
    for width in (1, 2, 3):
        points = [tuple(rng.randrange(6) for _ in range(width)) for _ in range(60)]
        front = pareto_front(points)
        free = [i for i, p in enumerate(points) if not any(dominates(q, p) for q in points)]
        assert sorted(front) == free
        levels = ranks(points)
        assert [i for i, r in enumerate(levels) if r == 0] == free
        assert best_of(points) in free
        assert len(crowding(points)) == len(points)


def test_figures_that_do_not_fit_are_refused():
    from scitoolkit.core.errors import DataError
    from scitoolkit.core.results import Bars, Series

    with pytest.raises(DataError, match="values for"):
        draw_plot(Bars(title="t", labels=["a"], values=[], x_label="x"))
    series = [Series(label="s", x=[1.0], y=[1.0, 2.0])]
    with pytest.raises(DataError, match="values for"):
        draw_plot(Points(title="t", x_label="x", y_label="y", series=series))


@pytest.mark.parametrize(
    "empty",
    [
        Points(title="t", x_label="x", y_label="y", series=[]),
        Parallel(title="t", axes=[], rows=[], colour=[], colour_label="c"),
        Diagram(title="t", boxes=[], arrows=[]),
    ],
)
def test_empty_figures_say_so(empty):
    figure = draw_plot(empty)
    assert any(text.get_text() == "no values" for text in figure.axes[0].texts)


def test_the_live_table_says_how_it_goes(capsys):
    from scitoolkit.search.live import LiveTable, facts

    search = Search(SPACE, cases.distance, objectives=["objective"])
    seen = []
    with LiveTable() as live:

        def progress(running):
            seen.append(facts(running, 60.0, 0))
            live.update(running)

        search.run(trials=5, progress=progress)
    assert seen[-1]["trials"] == "5 done, 0 running, 0 failed"
    assert seen[-1]["per minute"] == "5.0"
    assert f"objective {search.history.best.values[0]:.5g}" == seen[-1]["best"]


@pytest.mark.parametrize(
    ("base", "said"),
    [
        (0.0, "The searched network does not beat the forecast without one: objective"),
        (900.0, "The searched network beats the forecast without one, beyond seed noise"),
        (None, ""),
    ],
)
def test_the_summary_says_whether_the_winner_beats_what_it_adds_to(base, said):
    def evaluate(configuration, trial):
        figures = cases.distance(configuration, trial)
        return figures if base is None else {**figures, "objective_base": base}

    search = Search(SPACE, evaluate, strategy=RandomSearch())
    history = search.run(trials=6, retrain=(2, 2))
    lines = [s for s in search_results(history, SPACE).summary if "without one" in s]
    assert [line[: len(said)] for line in lines] == ([said] if said else [])


def test_the_number_of_configurations_is_stated_in_words():
    space = Space({"a": [1, 2], "b": [1, 2, 3]})
    history = Search(space, lambda c: c["a"], strategy=RandomSearch()).run(trials=1)
    first = search_results(history, space).summary[0]
    assert first.startswith("1 of 6 configurations was evaluated in ")
    space = Space({"lr": real(0, 1), "a": [1, 2], "b": [1, 2]})
    history = Search(space, lambda c: c["lr"], strategy=RandomSearch()).run(trials=3)
    first = search_results(history, space).summary[0]
    assert first.startswith(
        "3 configurations of a space with 2 discrete and 1 continuous parameter were evaluated"
    )
    assert " on 1 worker, " in first


def test_a_ranking_from_few_trials_is_called_unreliable():
    space = Space({"big": [0, 1, 2], **{f"p{i}": [0, 1] for i in range(12)}})
    notes = {}
    for trials in (20, 60):
        history = Search(space, lambda c: c["big"], strategy=RandomSearch()).run(trials=trials)
        figures = {f.kind: f for f in search_results(history, space).figures}
        notes[trials] = figures["bars"].note
        assert len(figures["parallel"].axes) == 8
        assert "5 are left out" in figures["parallel"].note
    assert notes[20].startswith("Not reliable")
    assert not notes[60]


def test_the_winner_is_compared_with_the_forecast_without_a_network():
    def evaluate(configuration):
        return {"rmse": 1.0 + configuration["x"], "rmse_base": 0.9}

    search = Search({"x": [0.0, 1.0]}, evaluate, strategy=RandomSearch(), objectives=["rmse"])
    history = search.run(trials=2, retrain=(2, 2))
    results = search_results(history, search.space)
    assert results.verdict.sentence.endswith(
        "1.0, 11 % above the no-network forecast (0.9): the baseline is better."
    )
    trials = results.figures[0]
    assert [s.label for s in trials.series][-1] == "without a searched network"


@pytest.mark.parametrize("direction", ["min", "max"])
def test_the_figure_of_trials_shows_what_the_text_tells(direction):
    from scitoolkit.search import Objective

    sign = 1 if direction == "min" else -1
    values = iter([1.0, 1.3, 1.2, 1.4, 50.0, 1.1, 1.6, 1.7])

    def evaluate(configuration):
        return {"score": sign * next(values)}

    search = Search(
        Space({"lr": real(1e-4, 1e-1, log=True)}),
        evaluate,
        strategy=RandomSearch(),
        objectives=[Objective(name="score", direction=direction)],
    )
    history = search.run(trials=6, retrain=(1, 2))
    results = search_results(history, search.space)
    trials, best, finalist = results.figures[0].series
    assert trials.x == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]  # the numbers of the text and of the tables
    assert trials.y[4] is None
    assert "1 trial " in results.figures[0].note
    assert f"up to {sign * 50.0:.4g}" in results.figures[0].note
    assert best.y[0] == sign * 1.0
    assert (finalist.x, finalist.y) == ([0.0], [pytest.approx(sign * 1.65)])
    (won,) = [line for line in results.summary if line.startswith("Trial 0 won")]
    assert f"{sign * 1.65:.5g} ({sign * 1.0:.5g} in the search, by its seed)" in won
