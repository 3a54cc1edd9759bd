"""The summary says where the model loses, and the tables mark the best methods."""

from __future__ import annotations

import json

import pytest

from scitoolkit import api
from scitoolkit.core.results import Results
from scitoolkit.reporting.tables import best_rows
from scitoolkit.superresolution.evaluation import BASELINES, over_simulations


@pytest.fixture(scope="module")
def results(job_file) -> Results:
    """Return the results of a model that is hardly trained: interpolation is better."""
    flow = {"velocity": {"x": "u"}, "viscosity": 0.1, "time": "t"}
    run = api.run(job_file(flow=flow, training={"steps": 1}))
    return Results.model_validate(json.loads((run.path / "results.json").read_text()))


def test_the_summary_names_every_statistic_of_which_a_baseline_is_better(results):
    names = [key for key in results.metrics if key.endswith("_error")]
    assert {"kinetic_energy_error", "dissipation_error", "spectrum_error"} <= set(names)
    (sentence,) = [s for s in results.summary if s.startswith("Interpolation has")]
    for key in names:
        errors = {b: results.metrics[f"{key}_{b}"] for b in BASELINES}
        best = min(errors, key=errors.get)
        lost = errors[best] < results.metrics[key]
        name = key.removesuffix("_error").replace("_", " ")
        name = name.replace("taylor", "Taylor").replace("kolmogorov", "Kolmogorov")
        assert (f" {name} ({best} " in sentence) == lost
        if lost:
            unit, scale = ("decades", 1) if key == "spectrum_error" else ("%", 100)
            figures = f"{scale * errors[best]:.3g} {unit}, model {scale * results.metrics[key]:.3g}"
            assert figures in sentence


def test_a_model_that_is_better_in_everything_has_no_such_sentence(results):
    perfect = {k: 0.0 if k.endswith("_error") else v for k, v in results.metrics.items()}
    best = results.model_copy(update={"metrics": perfect})
    summary = over_simulations([best, best], ["u"]).summary
    assert [s for s in summary if "Interpolation has" in s] == []
    assert len(summary) == 2


def test_the_smallest_error_of_each_statistic_is_marked_but_never_the_truth(results):
    (table,) = [t for t in results.tables if t.title == "Turbulence statistics"]
    marked = best_rows(table)
    assert table.rows[0][0] == "truth (mean over time)"
    for column, rows in list(enumerate(marked))[1:]:
        errors = [row[column] for row in table.rows[1:]]
        assert rows == {1 + i for i, e in enumerate(errors) if e == min(errors)}


def test_the_summary_of_several_simulations_compares_their_means(results):
    worse, better = (
        results.model_copy(update={"metrics": m})
        for m in ({**results.metrics, "r2_u": r2} for r2 in (-99.0, 99.0))
    )
    for found, count in ([worse, better, better], 1), ([worse, worse, better], 0):
        summary = over_simulations(found, ["u"]).summary
        assert summary[0] == results.summary[0]
        assert f"multilinear interpolation on {count}" in summary[1]
