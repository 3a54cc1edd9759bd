"""What values of one name mean, by CF attributes: other means, sums or directions do not mix.

Source: CF Conventions 1.12, sections 3.3 (standard names) and 7.3 (cell methods).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

_METHOD = re.compile(r"\b(?:time\w*|t): (?:\w+: )*(\w+)")


def meaning_of(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return what attributes state: standard name, direction, and the method along time.

    Comments of a method, such as the interval of the program's own steps, are left out.

    Example:
        >>> meaning_of({"cell_methods": "area: time: mean (interval: 20 minutes)", "units": "K"})
        {'cell_methods': 'time: mean'}
    """
    meaning = {
        key: str(attributes[key]).strip()
        for key in ("standard_name", "positive")
        if attributes.get(key)
    }
    if method := _METHOD.search(str(attributes.get("cell_methods", ""))):
        meaning["cell_methods"] = f"time: {method[1]}"
    return meaning


def other_meaning(first: Mapping[str, Any], other: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the first statement that differs, of the other and of the first; None if none does.

    Example:
        >>> other_meaning({"cell_methods": "time: mean"}, {"cell_methods": "time: maximum"})
        ('cell_methods time: maximum', 'cell_methods time: mean')
    """
    own, here = meaning_of(first), meaning_of(other)
    for key in own.keys() & here.keys():
        if own[key].lower() != here[key].lower():
            return f"{key} {here[key]}", f"{key} {own[key]}"
    return None


def without_mean(attributes: Mapping[str, Any]) -> str:
    """Return why numbers between two values mean nothing, "" if they are of a quantity.

    Source: CF Conventions 1.12, section 3.5 (flags); standard names of directions.

    Example:
        >>> without_mean({"standard_name": "wind_from_direction"})
        'angles, of which 359 and 1 degrees are neighbours: use both components, or sine and cosine'
        >>> without_mean({"units": "K"})
        ''
    """
    if {"flag_values", "flag_meanings"} & attributes.keys():
        return "codes of classes, which are learned as a quantity"
    if str(attributes.get("standard_name", "")).endswith("_direction"):
        return (
            "angles, of which 359 and 1 degrees are neighbours: use both components, or sine and "
            "cosine"
        )
    return ""
