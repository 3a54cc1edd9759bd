"""Pages that are written from the code are up to date, and every page is in the navigation."""

from __future__ import annotations

import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
MAKE = DOCS / "reference" / "make.py"


def test_pages_made_from_the_code_are_what_the_code_says():
    for path, text in runpy.run_path(str(MAKE))["pages"]().items():
        assert path.read_text(encoding="utf-8") == text, f"run {MAKE}"


def test_every_page_is_in_the_navigation():
    navigation = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")]
    assert [page for page in sorted(pages) if f": {page}\n" not in navigation] == []
