"""Results that are not finite are stored as null and read again; verdicts compare finite values."""

from __future__ import annotations

import json
import math

import pytest

from scitoolkit.core.results import Bars, Lines, Results, Series, Verdict


def test_numbers_that_are_not_finite_are_null_and_results_are_read_again(tmp_path):
    verdict = Verdict(quantity="RMSE", ours=math.nan, rival=1.0, rival_name="mean")
    figures = [
        Lines(title="", x=[0, math.inf], x_label="", y_label="", series=[Series(label="a", y=[1])]),
        Bars(title="", labels=["a"], values=[math.nan], x_label=""),
    ]
    metrics = {"rmse": math.nan, "ratio": math.inf, "num": 3, "name": "x"}
    (tmp_path / "model").mkdir()
    results = Results(
        title="", verdict=verdict, metrics=metrics, units={"rmse": "K"}, figures=figures
    )
    results.write_run(tmp_path, tmp_path / "model")
    text = (tmp_path / "model" / "metrics.json").read_text(encoding="utf-8")
    stored = json.loads(text, parse_constant=pytest.fail)
    expected = {"rmse": None, "ratio": None, "num": 3, "name": "x"}
    assert stored == {"units": {"rmse": "K"}, **expected}
    again = Results.read(tmp_path)
    assert again.metrics == expected
    assert math.isnan(again.verdict.ours)
    assert math.isnan(again.figures[1].values[0])


@pytest.mark.parametrize("order", [["a", "b", "c"], ["c", "b", "a"]])
def test_a_method_without_a_finite_value_is_no_baseline(order):
    values = {"ours": 1.0, "a": 3.0, "b": math.nan, "c": 2.0}
    found = Verdict.among({k: values[k] for k in ["ours", *order]}, "ours", "RMSE")
    assert (found.rival_name, found.rival) == ("c", 2.0)
    assert Verdict.among({"ours": math.nan, "a": 1.0}, "ours", "RMSE") is None
