from __future__ import annotations

import pytest

from scitoolkit.core.config import Config
from scitoolkit.core.errors import CheckpointError, DataError
from scitoolkit.core.model_folder import ModelFolder
from scitoolkit.core.results import Results
from scitoolkit.core.run_directory import RunDirectory


def test_what_a_run_saves_is_found_from_the_run_and_from_its_copy(tmp_path):
    import torch

    run = RunDirectory.create(tmp_path, "demo", Config())
    model = ModelFolder.create(run)
    weights = {"a": torch.arange(6.0).reshape(2, 3).T}  # not contiguous
    model.save_weights(weights)
    model.finish(run, {"steps": 3})
    assert [p for p in model.path.iterdir() if p.suffix == ".tmp"] == []
    for folder in (ModelFolder(run.path), ModelFolder(model.path)):
        assert folder.record() == {"steps": 3}
        assert torch.equal(folder.load_weights()["a"], weights["a"])
        assert folder.config(Config) == Config()
    assert ModelFolder(run.path).in_run
    assert not ModelFolder(model.path).in_run


def test_results_are_written_into_runs_only_and_not_for_other_data(tmp_path):
    run = RunDirectory.create(tmp_path, "demo", Config())
    model = ModelFolder.create(run)
    results = Results(title="t", metrics={"rmse": 1.0})
    assert not model.write_results(results, tmp_path / "other.nc")
    assert not (run.path / "results.json").exists()
    assert model.write_results(results, None)
    assert Results.read(run.path) == results
    assert (model.path / "metrics.json").is_file()
    assert not ModelFolder(model.path).write_results(results, None)


def test_a_folder_without_a_model_says_what_to_do(tmp_path):
    with pytest.raises(DataError, match="no trained model in this folder"):
        ModelFolder(tmp_path).record()
    with pytest.raises(CheckpointError, match="scitoolkit train"):
        ModelFolder(tmp_path).load_weights()
    (tmp_path / "weights.safetensors").write_bytes(b"cut")
    with pytest.raises(CheckpointError, match="cannot be read"):
        ModelFolder(tmp_path).load_weights()
