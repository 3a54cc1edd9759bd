"""Stored results of benchmarks, and the marked parts of pages generated from them."""

from __future__ import annotations

import json
from typing import Any

from _places import RESULTS


def stored(benchmark: str) -> Any:
    """Return the stored results of a benchmark, None when nothing is stored."""
    path = RESULTS / f"{benchmark}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def between(text: str, begin: str, end: str, new: str) -> str:
    """Return the text with the part between two marks replaced."""
    head, _, rest = text.partition(begin)
    _, _, tail = rest.partition(end)
    return f"{head}{begin}\n{new}\n{end}{tail}"
