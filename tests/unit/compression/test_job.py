"""The workflow from configuration to report, on a small file."""

from __future__ import annotations

import h5py
import numpy as np

from scitoolkit import api
from scitoolkit.core.content import content_root


def test_the_workflow_verifies_and_compares(tmp_path):
    config = content_root("workflows") / "compress_snapshot" / "train.yaml"
    run = api.run(config, [f"run.root={tmp_path}", "data.variables=[native_fields/velocity_x]"])
    results = api.evaluate(run.path)
    assert results.metrics["broken"] == 0
    assert results.metrics["largest_error_over_bound"] <= 1
    assert results.metrics["gain_db_min"] > 0.8
    assert (run.path / "report" / "index.html").is_file()


def test_predict_compresses_another_file(tmp_path):
    with h5py.File(tmp_path / "in.h5", "w") as file:
        file["v"] = np.linspace(0, 1, 4096, dtype="f4").reshape(16, 16, 16)
    config = content_root("workflows") / "compress_snapshot" / "train.yaml"
    run = api.train(config, [f"run.root={tmp_path}", f"data.path={tmp_path / 'in.h5'}"])
    api.predict(run.path, tmp_path / "in.h5", tmp_path / "out.h5")
    assert (tmp_path / "out.h5").stat().st_size < (tmp_path / "in.h5").stat().st_size
    assert api.check(config)["variables"]
