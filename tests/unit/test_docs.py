"""Pages that are written from the code are up to date."""

from __future__ import annotations

import runpy
from pathlib import Path

MAKE = Path(__file__).parents[2] / "docs" / "reference" / "make.py"


def test_the_page_of_plugin_kinds_is_what_the_registries_say():
    made = runpy.run_path(str(MAKE))
    assert made["PAGE"].read_text(encoding="utf-8") == made["page"](), f"run {MAKE}"
