from __future__ import annotations

import json
from pathlib import Path

import pytest

from scitoolkit.core.config import DataPath, load_config
from scitoolkit.core.errors import DataError
from scitoolkit.core.job import Artifacts
from scitoolkit.core.job_config import JobConfig
from scitoolkit.core.publish import publish
from scitoolkit.core.run_directory import RunDirectory


class Config(JobConfig):
    path: DataPath


def test_the_card_quotes_what_the_run_measured_and_paths_are_relative(tmp_path):
    data = tmp_path / "datasets" / "flow.h5"
    config = Config(
        domain="x", workflow="no_such_workflow", path=data, run={"root": str(tmp_path / "runs")}
    )
    run = RunDirectory.create(tmp_path / "runs", "flow", config).path
    destination = tmp_path / "surrogates" / "flow"
    with pytest.raises(DataError, match="not an evaluated run"):
        publish(run, destination, config, Artifacts())
    (run / "model").mkdir()
    (run / "model" / "w.bin").write_bytes(b"weights")
    figures = {"units": {"rmse": "m"}, "rmse": 0.123456, "samples": 7, "name": "text"}
    (run / "model" / "metrics.json").write_text(json.dumps(figures))
    destination.mkdir(parents=True)
    card = destination / "README.md"
    card.write_text("# flow\n<!-- measured -->\nold\n<!-- /measured -->\nend\n")
    publish(run, destination, config, Artifacts(rows=["| made | yes |"]))
    text = card.read_text()
    assert "| made | yes |\n| rmse | 0.1235 m |\n| samples | 7 |" in text
    assert "old" not in text
    assert text.endswith("end\n")
    assert (destination / "w.bin").read_bytes() == b"weights"
    written = (destination / "config.yaml").read_text()
    assert str(tmp_path) not in written
    assert load_config(Config, destination / "config.yaml").path == Path(data).resolve()
