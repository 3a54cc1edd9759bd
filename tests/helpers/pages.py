"""Code of the documentation's pages, which tests execute."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

DOCS = Path(__file__).resolve().parents[2] / "docs"


def page(name: str) -> str:
    """Return the text of a page of docs/, such as "tutorials/emulation"."""
    return (DOCS / f"{name}.md").read_text(encoding="utf-8")


def python_blocks(text: str) -> list[str]:
    """Return the Python blocks of a page in order; those marked `notest` are left out."""
    return re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)


def shortened(code: str, replacements: Mapping[str, str]) -> str:
    """Return code with settings of a shorter run, each of which the page must contain."""
    for written, shorter in replacements.items():
        assert written in code, f"the page does not contain {written!r}"
        code = code.replace(written, shorter)
    return code
