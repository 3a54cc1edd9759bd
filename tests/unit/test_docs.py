"""Pages that are written from the code are up to date, and every page is in the navigation."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

DOCS = Path(__file__).parents[2] / "docs"
MAKE = DOCS / "reference" / "make.py"
MAX_GALLERY = 10**6  # bytes


def test_pages_made_from_the_code_are_what_the_code_says():
    for path, text in runpy.run_path(str(MAKE))["pages"]().items():
        assert path.read_text(encoding="utf-8") == text, f"run {MAKE}"


def test_every_page_is_in_the_navigation():
    navigation = (DOCS.parent / "mkdocs.yml").read_text(encoding="utf-8")
    pages = [str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md")]
    assert [page for page in sorted(pages) if f": {page}\n" not in navigation] == []


def test_the_gallery_is_small_and_shows_every_picture():
    page = (DOCS / "gallery" / "index.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"\]\((\w+\.webp)\)", page))
    pictures = list((DOCS / "gallery").glob("*.webp"))
    assert shown == {picture.name for picture in pictures}
    assert len(shown) > 5
    assert sum(picture.stat().st_size for picture in pictures) < MAX_GALLERY
