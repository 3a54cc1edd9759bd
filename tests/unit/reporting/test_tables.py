"""Tables as text."""

import pytest

from scitoolkit.core.results import Table
from scitoolkit.reporting import text_table
from scitoolkit.reporting.tables import best_rows, format_column
from scitoolkit.surrogate.sections import score_table


def test_columns_are_aligned_with_units_and_the_best_is_marked():
    rows = [["persistence", 0.91, None], ["POD", 0.5, 3]]
    table = Table(title="T", columns=["model", "RMSE (K)", "n"], rows=rows, best="min", note="N")
    title, head, unit, rule, first, second, legend, note = text_table(table).splitlines()
    assert (title, legend, note) == ("T", "* best in its column", "N")
    assert unit.split() == ["K"]
    assert second.split() == ["POD", "0.5000*", "3"]
    assert first.split() == ["persistence", "0.9100", "–"]
    assert head.index("RMSE") + 3 == unit.index("K")
    assert first.index("0.9100") == second.index("0.5000")
    assert len(rule) >= len(second)


def test_nan_is_never_the_best_and_short_rows_are_filled():
    table = Table(
        title="", columns=["m", "e", "f"], rows=[["a", float("nan")], ["b", 2.0], ["c", 1.0]]
    )
    assert best_rows(table.model_copy(update={"best": "min"}))[1] == {2}
    assert text_table(table).splitlines()[2].split() == ["a", "–", "–"]


def test_columns_of_wide_range_use_significant_digits():
    assert format_column([1234.5, 0.3468]) == ["1234.50", "0.35"]
    assert format_column([1e-9, 2.5]) == ["1e-09", "2.5"]


def test_control_characters_do_not_reach_the_terminal():
    assert "\x1b" not in text_table(Table(title="\x1b[2J", columns=["a\x1b"], rows=[["\x1b"]]))


def test_an_empty_table_is_drawn():
    assert text_table(Table(title="T", columns=["a"], rows=[])).splitlines() == ["T", "a", "-"]


@pytest.mark.parametrize(("best", "errors", "skills"), [("min", {1}, {1}), ("max", {0}, {0})])
def test_the_best_of_a_skill_beside_errors_is_the_highest(best, errors, skills):
    table = Table(
        title="",
        columns=["method", "rmse", "r2"],
        rows=[["mean", 6.7, 0.0], ["model", 0.1, 0.99]],
        best=best,
        opposite=["r2"],
    )
    assert best_rows(table)[1:] == [errors, skills]


def test_tables_of_scores_know_their_skills():
    errors = {"mean": {"rmse": 6.7, "r2": -0.1}, "model": {"rmse": 0.1, "r2": 0.99}}
    assert best_rows(score_table("", errors, "min"))[1:] == [{1}, {1}]
    ranks = {"a": {"mrr": 0.4, "r2": 0.1}, "b": {"mrr": 0.3, "r2": 0.2}}
    assert best_rows(score_table("", ranks, "max"))[1:] == [{0}, {1}]
