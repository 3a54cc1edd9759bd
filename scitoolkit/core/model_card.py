"""Card of a published model: its training data, its measured figures, and their date and device."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any


def card_of(run: Path, model: Path, reference: str, licence: str, domain: str) -> str:
    """Return the card of a model as Markdown.

    Args:
        run: run directory or surrogate, with env.json where the machine is recorded.
        model: folder with metrics.json and, where the domain stores them, facts.json.
        reference: `NAME@VERSION`.
        licence: of the weights.
        domain: of the configuration.
    """
    lines = [f"# {reference}", "", f"Domain `{domain}`, licence {licence}.", ""]
    lines += ["```python", "from scitoolkit import load_surrogate", ""]
    lines += [f"load_surrogate({reference!r})", "```"]
    lines += ["", "## Training data", "", *_data(_read(model / "facts.json"))]
    lines += ["", "## Measured", "", *_measured(model / "metrics.json", _read(run / "env.json"))]
    lines += [
        "",
        "## Where not to use it",
        "",
        "On data that differ from the facts above: `evaluate` and `predict` compare each file with "
        "them, convert units and directions, and refuse what they cannot convert. Nothing is known "
        "about values outside the range of the training data.",
    ]
    return "\n".join(lines) + "\n"


def _data(facts: dict[str, Any]) -> list[str]:
    if not facts:
        return ["The model stores no facts of its training data."]
    lines = []
    if facts.get("variables"):
        lines += ["| variable | unit | dims |", "|---|---|---|"]
        lines += [
            f"| {v.get('name', '')} | {_unit(v)} | {', '.join(v.get('dims', []))} |"
            for v in facts["variables"]
        ]
        lines += [""]
    lines += ["| dim | role | entries | unit |", "|---|---|---|---|"]
    lines += [
        f"| {d.get('name', '')} | {d.get('role', '')} | {d.get('size', '')} | {_unit(d)} |"
        for d in facts.get("dims", [])
    ]
    lines += [""]
    if facts.get("species"):
        lines += [f"- species: {', '.join(facts['species'])}"]
    lines += [f"- {label} in {unit}" for label, unit in facts.get("labels", {}).items()]
    parameters = facts.get("parameters", {})
    lines += [f"- {name}: {low:g} to {high:g} {u}" for name, (low, high, u) in parameters.items()]
    return lines


def _unit(stored: dict[str, Any]) -> str:
    return stored.get("units") or "–"


def _measured(file: Path, environment: dict[str, Any]) -> list[str]:
    figures = _read(file)
    if not figures:
        return ["Not evaluated."]
    units = figures.pop("units", {})
    day = time.strftime("%Y-%m-%d", time.gmtime(file.stat().st_mtime))
    devices = environment.get("devices", {})
    device = ", ".join(devices.get("cuda") or []) or devices.get("cpu") or "device not recorded"
    rows = [
        f"| {name} | {value:.4g} | {units.get(name, '')} |"
        for name, value in figures.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]
    return [f"On {day}, {device}.", "", "| figure | value | unit |", "|---|---|---|", *rows]


def _read(file: Path) -> dict[str, Any]:
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
