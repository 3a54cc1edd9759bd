"""Make a shipped surrogate of a run: `python -m scitoolkit.forecasting.publish RUN DESTINATION`.

Copies the run's `model/`, makes the path of the data relative to the destination, writes the
measured figures into the table of the card and, where the workflow of that name is there, into
its `expected.json`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any

from scitoolkit.core.config import dump_config, load_config
from scitoolkit.core.content import content_root
from scitoolkit.core.errors import DataError
from scitoolkit.core.run_directory import write_atomic
from scitoolkit.forecasting.config import ForecastingConfig
from scitoolkit.forecasting.job import FIT_RECORD

TOLERANCE = 0.02
"""Relative difference of metrics between processors that is no cause for concern."""

_TABLE = re.compile(r"<!-- measured -->.*<!-- /measured -->", re.DOTALL)


def publish(run: Path, destination: Path) -> Path:
    """Copy a finished run's model into `destination` and fill the card's table.

    Raises:
        DataError: the run was not evaluated.
    """
    model = Path(run) / "model"
    if not (model / "metrics.json").is_file():
        raise DataError("not an evaluated run", where=str(run), fix=f"scitoolkit evaluate {run}")
    destination = Path(destination)
    destination.mkdir(parents=True, exist_ok=True)
    for name in ("weights.safetensors", "fit.json", "metrics.json"):
        shutil.copyfile(model / name, destination / name)
    config = load_config(ForecastingConfig, model / "config.yaml")
    text = dump_config(config)
    relative = os.path.relpath(config.data.path, destination.resolve())
    text = text.replace(str(config.data.path), relative).replace(str(config.run.root), "runs")
    write_atomic(destination / "config.yaml", text)
    card = destination / "README.md"
    if card.is_file():
        table = f"<!-- measured -->\n{_measured(model)}\n<!-- /measured -->"
        write_atomic(card, _TABLE.sub(lambda _: table, card.read_text(encoding="utf-8")))
    workflow = content_root("workflows") / config.workflow
    if workflow.is_dir():
        figures = json.loads((model / "metrics.json").read_text(encoding="utf-8"))
        write_atomic(workflow / "expected.json", json.dumps(_expected(config, figures), indent=1))
    return destination


def _expected(config: ForecastingConfig, figures: dict[str, Any]) -> dict[str, Any]:
    units = figures.pop("units")
    return {
        "command": f"scitoolkit run workflows/{config.workflow}",
        "relative_tolerance": TOLERANCE,
        "metrics": {name: v for name, v in figures.items() if isinstance(v, float)},
        "units": units,
    }


def _measured(model: Path) -> str:
    figures = json.loads((model / "metrics.json").read_text(encoding="utf-8"))
    units = figures.pop("units")
    record = json.loads((model / FIT_RECORD).read_text(encoding="utf-8"))
    rows = [f"| chosen on validation | {record['winner']} |"] + [
        f"| {name} | {value:.4g} {units.get(name, '')}".rstrip() + " |"
        for name, value in figures.items()
        if isinstance(value, (int, float))
    ]
    return "\n".join(["| figure | value |", "|---|---|", *rows])


if __name__ == "__main__":
    print(publish(Path(sys.argv[1]), Path(sys.argv[2])))
