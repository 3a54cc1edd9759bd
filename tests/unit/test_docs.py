"""Pages that are written from the code are up to date."""

from __future__ import annotations

import importlib.util
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_of_plugin_kinds_is_what_the_registries_say():
    spec = importlib.util.spec_from_file_location("make", DOCS / "reference" / "make.py")
    assert spec and spec.loader
    make = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(make)
    assert make.PAGE.read_text(encoding="utf-8") == make.page(), "python docs/reference/make.py"
