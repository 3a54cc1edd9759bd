"""Make a shipped surrogate of a run: `python -m scitoolkit.forecasting.publish RUN DESTINATION`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from scitoolkit.core import publish as core
from scitoolkit.core.config import load_config
from scitoolkit.forecasting.config import ForecastingConfig
from scitoolkit.forecasting.job import FIT_RECORD

FILES = ("weights.safetensors", FIT_RECORD)


def publish(run: Path, destination: Path) -> Path:
    """Copy a finished run's model into `destination`; see `scitoolkit.core.publish`."""
    config = load_config(ForecastingConfig, Path(run) / "config.yaml")
    record = Path(run) / "model" / FIT_RECORD
    rows = []
    if record.is_file():
        winner = json.loads(record.read_text(encoding="utf-8"))["winner"]
        rows.append(f"| chosen on validation | {winner} |")
    return core.publish(run, destination, config, FILES, rows=rows)


if __name__ == "__main__":
    print(publish(Path(sys.argv[1]), Path(sys.argv[2])))
