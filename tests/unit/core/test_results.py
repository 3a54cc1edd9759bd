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


@pytest.mark.parametrize(
    ("ours", "rival", "settings", "sentence"),
    [
        (
            0.46921,
            0.47004,
            {"tie": True},
            "RMSE: 0.4692 °C, 0.18 % below mean (0.4700 °C): a tie, within noise.",
        ),
        (0.6, 0.5, {}, "RMSE: 0.6 °C, 20 % above mean (0.5 °C): the baseline is better."),
        (0.5, 0.5, {}, "RMSE: 0.5 °C, equal to mean."),
        (math.nan, 0.5, {}, "RMSE: –."),
        (
            55.0512,
            51.3,
            {"better": "max", "rate": False, "unit": "dB"},
            "RMSE: 55.05 dB, 3.75 dB above mean (51.30 dB).",
        ),
        (-1.0, 2.0, {"unit": "1"}, "RMSE: -1, 3 below mean (2)."),
        (
            2e-7,
            1e-7,
            {"unit": ""},
            "RMSE: 2e-07, a factor of 2 above mean (1e-07): the baseline is better.",
        ),
    ],
)
def test_a_verdict_is_a_sentence_that_names_ties_and_losses(ours, rival, settings, sentence):
    settings = {"unit": "degC", **settings}
    verdict = Verdict(quantity="RMSE", ours=ours, rival=rival, rival_name="mean", **settings)
    assert verdict.sentence == sentence


def test_values_that_differ_are_printed_as_different():
    verdict = Verdict(quantity="R²", ours=0.99998, rival=0.999979, rival_name="a", better="max")
    assert verdict.values == ("0.999980", "0.999979")
    assert Verdict(quantity="R²", ours=1.0).margin == ""


def test_the_margin_names_the_outcome():
    def margin(ours, **settings):
        return Verdict(quantity="e", ours=ours, rival=1.0, rival_name="a", **settings).margin

    assert margin(0.25) == "4 x better"
    assert margin(0.99) == "1 % better"
    assert margin(1.5) == "50 % worse"
    assert margin(1.001, tie=True) == "tie (within 0.1 %)"
    assert margin(1.0) == "tie"
