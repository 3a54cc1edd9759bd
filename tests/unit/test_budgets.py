"""The package stays within `budgets.yaml`, and the checker fails above a bound."""

from __future__ import annotations

import copy
import re
from pathlib import Path

import budgets
import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
BOUNDS = yaml.safe_load((ROOT / "budgets.yaml").read_text())


@pytest.fixture(scope="module")
def measured():
    return budgets.measure(ROOT / "scitoolkit")


def test_the_package_is_within_its_budgets(measured):
    assert budgets.excesses(measured, BOUNDS) == []


def test_every_room_has_a_bound(measured):
    assert set(measured["code_lines"]) == set(BOUNDS["code_lines"])


@pytest.mark.parametrize("room", sorted(BOUNDS["code_lines"]))
def test_a_room_above_its_bound_is_named(measured, room):
    grown = copy.deepcopy(measured)
    grown["code_lines"][room] = BOUNDS["code_lines"][room] + 1
    (line,) = budgets.excesses(grown, BOUNDS)
    assert f"{room}: " in line


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("", 0),
        ("# why\n\n", 0),
        ('"""Doc\n\nof two."""\nx = 1\n', 1),
        ('def f():\n    """Doc."""  # note\n    return 1\n', 2),
        ('x = """a\nb\nc"""\n', 3),
        ('x = (\n    # why\n    1,\n    "text",\n)\n', 4),
        ('f("a")\n', 1),
        ('class A:\n    """Doc."""\n\n    b: int\n    """Field."""\n', 2),
    ],
)
def test_only_code_is_counted(source, lines):
    assert budgets.code_lines(source) == lines


def test_empty_names_and_shared_class_names_are_counted(tmp_path):
    for room, source in {
        "one": "class Grid: ...\nclass AConfig: ...\nfor each in (): ...\n",
        "two": "class Grid: ...\nclass AConfig: ...\ndef f(found): kept = found\n",
    }.items():
        (tmp_path / room).mkdir()
        (tmp_path / room / "part.py").write_text(source)
    counts = budgets.measure(tmp_path)
    assert counts["shared_class_names"] == {"Grid": 2}
    # A parameter is part of an interface; the objects inside are not.
    assert counts["empty_names"] == {"one": 1, "two": 1}
    lines = budgets.excesses(counts, {"code_lines": {"one": 9, "two": 9}})
    assert [re.search(r": (\w+): (\w+): 2? ?", line).group(1, 2) for line in lines] == [
        ("empty_names", "one"),
        ("empty_names", "two"),
        ("shared_class_names", "Grid"),
    ]


def test_bounds_of_names_only_shrink(measured):
    lower = budgets.lowered(measured, BOUNDS)
    for table in ("empty_names", "shared_class_names"):
        assert all(lower[table][name] <= BOUNDS[table][name] for name in lower.get(table, ()))


def test_the_formatter_is_not_switched_off():
    switch = re.compile(r"#\s*fmt:\s*" + "(skip|off)")
    places = [
        f"{path.relative_to(ROOT)}:{number}"
        for folder in ("scitoolkit", "tests", "benchmarks", "docs", "containers")
        for path in (ROOT / folder).rglob("*.py")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if switch.search(line)
    ]
    assert not places, "the formatter decides the layout: " + ", ".join(places)
