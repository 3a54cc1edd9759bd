"""Pages that are written from the code are up to date, and every page is in the navigation."""

from __future__ import annotations

import re
import runpy
import tomllib
from pathlib import Path

from scitoolkit.core.jobs import domains
from scitoolkit.core.plugins import kind
from scitoolkit.core.resume import free_keys

DOCS = Path(__file__).parents[2] / "docs"
MAKE = DOCS / "reference" / "make.py"
MAX_GALLERY = 10**6  # bytes


def test_pages_made_from_the_code_are_what_the_code_says():
    for path, text in runpy.run_path(str(MAKE))["pages"]().items():
        assert path.read_text(encoding="utf-8") == text, f"run {MAKE}"


def test_a_domain_has_a_feature_or_a_reason_why_not_but_never_both():
    features = runpy.run_path(str(MAKE.with_name("features.py")))
    cells, reason = features["cells"](), features["reason"]
    assert len(cells) >= 60
    assert [cell for cell, text in cells.items() if bool(text) == bool(reason(*cell))] == []
    stated = {(what, domain) for what, of in features["REASONS"] for domain in of}
    assert stated <= set(cells)  # no reason for a feature or domain that is no more


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


def test_the_page_on_configurations_lists_what_may_change_on_resume():
    page = (DOCS / "concepts" / "configuration.md").read_text(encoding="utf-8")
    listed = set(re.findall(r"`([\w.]+)`", page.partition("## Resuming")[2].partition("\n## ")[0]))
    keys = {key for name in domains for key in free_keys(domains.get(name).config_class)}
    short = {key.removeprefix("training.").removeprefix("data.") for key in keys}
    assert short - listed == set()
    other = {"training", "data", "config.yaml", "FREE_ON_RESUME"}
    assert listed - short - other == set()


def test_the_page_on_search_and_the_example_list_every_space_and_strategy():
    page = (DOCS / "concepts" / "search.md").read_text(encoding="utf-8")
    names = [*kind("space"), *kind("search strategy")]
    assert [name for name in names if f"\n| `{name}` |" not in page] == []
    card = (DOCS.parent / "workflows" / "sst_search" / "README.md").read_text(encoding="utf-8")
    assert [name for name in kind("search strategy") if f"`{name}`" not in card] == []


def test_the_page_on_installation_lists_every_extra():
    project = tomllib.loads((DOCS.parent / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (DOCS / "how-to" / "install.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.+?) \|(.+)\|$", page.partition("## Extras")[2], re.M)
    told = {extra: text for names, text in rows for extra in re.findall(r"`(\w+)`", names)}
    extras = project["optional-dependencies"]
    assert [extra for extra in extras if extra not in told] == []
    within = set(re.findall(r"\[(\w+)\]", " ".join(extras["all"])))
    outside = {extra for extra, text in told.items() if "not in `all`" in text}
    assert outside & within == set()
    assert set(extras) - within - {"all"} == outside


def test_no_page_or_message_installs_the_other_project_of_this_name():
    """An index has a package of another project called scitoolkit; see the page on installation."""
    root = DOCS.parent
    places = [*root.glob("*.md"), *DOCS.rglob("*.md"), *(root / "scitoolkit").rglob("*.py")]
    command = re.compile(r"pip install (-\S+ )*['\"]?scitoolkit['\"`\s]")
    assert [p.name for p in places if command.search(p.read_text(encoding="utf-8"))] == []
