from __future__ import annotations

import pytest

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.registry import Registry


def test_lazy_entries_are_imported_when_asked_for():
    registry: Registry = Registry("thing", {"decoder": "json.decoder:JSONDecoder"})
    assert registry.names() == ["decoder"]
    assert registry.get("decoder").__name__ == "JSONDecoder"


def test_a_name_cannot_be_taken_twice():
    registry: Registry = Registry("thing")
    registry.register("a")(1)
    with pytest.raises(ValueError, match="twice"):
        registry.register("a")(2)


def test_an_unknown_name_lists_all_and_the_nearest():
    registry: Registry = Registry("thing", {"forecasting": "x:y", "graphs": "x:y"})
    with pytest.raises(ConfigError, match=r"Allowed: forecasting, graphs\. Fix: forecasting"):
        registry.get("forcasting")


def test_plug_ins_come_through_entry_points():
    assert "forecasting" in Registry("surrogate").names()
