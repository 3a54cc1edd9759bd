"""The tour of the code names files that exist, and every room."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "concepts" / "code-tour.md").read_text(encoding="utf-8")


def test_named_files_exist():
    names = set(re.findall(r"`((?:scitoolkit|tests|docs|benchmarks)/[\w./-]+)`", PAGE))
    assert len(names) > 50
    assert [name for name in sorted(names) if not (ROOT / name).exists()] == []


def test_every_room_states_what_is_stable():
    table = PAGE.partition("## What may I rely on?")[2]
    rooms = {path.parent.name for path in (ROOT / "scitoolkit").glob("*/__init__.py")}
    domains = {"potentials", "superresolution", "forecasting", "emulation", "graphs", "generators"}
    assert [room for room in sorted(rooms - domains) if f"`{room}`" not in table] == []
    assert "| domains |" in table
