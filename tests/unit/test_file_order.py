"""Long files of tests are started first, and the stored list names files that exist."""

from __future__ import annotations

import json

from tests.helpers.file_order import STORED, sorted_files


def test_files_that_take_longest_come_first():
    tests = ["a::x", "b::x", "c::x", "c::y", "b::y", "a::y"] + [f"many::{i}" for i in range(100)]
    assert sorted_files(tests, {"b": 30.0, "c": 4.0}) == ["b", "many", "c", "a"]


def test_the_stored_list_names_files_that_exist():
    stored = json.loads(STORED.read_text())
    root = STORED.parents[1]
    assert len(stored) > 20
    assert [name for name in stored if not (root / name).exists()] == []
