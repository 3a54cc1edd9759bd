"""Comments, docstrings and pages use the field's nouns: phrases that paraphrase them are refused.

docs/conventions.md has the glossary.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TERMS = {
    r"of its own\b": "separate, private, or leave it out",
    r"\blies? beside\b": "is next to, or name the relation",
    r"\btakes in\b": "reads, draws, collects",
    r"\bsaid once\b": "logged once",
    r"\b(is|are) told (of|about)\b": "receives",
    r"\blets? go of\b": "releases, drops",
    r"\bwhat (it|they|this|that) (has|have|is|are|takes?|gives?|says?|does|do|needs?)\b": (
        "name the property"
    ),
    r"\brests between steps\b": "memory held between steps",
    r"\bway back\b": "vector-Jacobian product, backward pass",
    r"\b(says|said) so\b": "logs, reports, raises",
    r"\banew\b": "again",
    r"\bin (its |the )?place of\b": "instead of, replaces",
    r"\bat hand\b": "available",
    r"\bthis very\b": "this, the same",
    r"\bno [a-z]+ that is\b": "name the class",
    r"\b(speaks?|spoken)\b": "logs, prints",
    r"\bstands? (beside|still)\b": "is next to, is constant",
    r"\bgoes on\b": "continues",
}
FOLDERS = (
    "scitoolkit",
    "docs",
    "workflows",
    "surrogates",
    "benchmarks",
    "containers",
    "datasets",
    "tests",
)
SUFFIXES = {".py", ".md", ".c", ".h", ".cpp", ".f90", ".html", ".yaml"}


def texts() -> list[Path]:
    found = [p for f in FOLDERS for p in (ROOT / f).rglob("*") if p.suffix in SUFFIXES]
    top = [p for p in ROOT.iterdir() if p.suffix in SUFFIXES or p.name == "Makefile"]
    return [p for p in (*found, *top) if p != Path(__file__).resolve()]


@pytest.mark.parametrize("phrase", TERMS)
def test_a_phrase_that_paraphrases_a_term_is_not_used(phrase):
    pattern = re.compile(phrase, re.IGNORECASE)
    places = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for path in texts()
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if pattern.search(line)
    ]
    assert not places, f"write instead: {TERMS[phrase]}\n" + "\n".join(places)
