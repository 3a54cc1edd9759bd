"""Every setting of a shipped workflow is read by its run, or refused when it is changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ase.io
import pytest

from scitoolkit import api
from scitoolkit.core.config import Config, ConfigProblems, Document
from scitoolkit.testing.config_reads import record_reads

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = ROOT / "workflows"
SLOW = pytest.mark.slow
PREDICTION = ("rollout.predict",)  # read by `predict`, which needs a file of states

CASES = [
    pytest.param("sst_forecast/train.yaml", ["ensemble=1", "harmonics=[2]", "pod.rank=2"]),
    pytest.param("node_classification/train.yaml", ["training.checkpoint.every_epochs=1"]),
    pytest.param("acac_mace/train.yaml", ["model.channels=4", "training.batch_size=20"]),
    pytest.param(
        "water_deepmd/train.yaml",
        [
            "model.embedding=[4,8]",
            "model.axis_neurons=4",
            "model.fitting=[8]",
            "split.validation=0.1",
        ],
    ),
    pytest.param("compress_snapshot/train.yaml", ["data.variables=[native_fields/velocity_x]"]),
    pytest.param("rayleigh_benard/train.yaml", ["crop.per_epoch=4"], marks=SLOW),
    pytest.param("field_surrogate/train.yaml", ["repeats=1", "rollout.evaluate=2"], marks=SLOW),
]


@pytest.fixture
def small(small_sst, tmp_path):
    """Return the settings that point a workflow at a small part of its data."""
    frames = tmp_path / "small.xyz"
    ase.io.write(frames, ase.io.read(ROOT / "datasets" / "acac" / "train_300K.xyz", "::20"))
    return {
        "sst_forecast/train.yaml": [f"data.path={small_sst}"],
        "acac_mace/train.yaml": [f"data.path=[{frames}]", f"data.test=[{frames}]"],
    }


def changed(value: Any) -> Any:
    """Return another value of the same type, or None where there is no obvious one."""
    if isinstance(value, bool):
        return not value
    return value + 1 if isinstance(value, int | float) else None


def is_refused(config: Config, key: str) -> bool:
    """Return whether a configuration with another value of `key` is refused."""
    raw = config.model_dump(mode="json")
    *parents, leaf = key.split(".")
    section = raw
    for parent in parents:
        section = section[parent]
    section[leaf] = changed(section[leaf])
    try:
        Document(raw=raw).validate(type(config))
    except ConfigProblems:
        return True
    return section[leaf] is None


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # torch_geometric
@pytest.mark.parametrize(("workflow", "settings"), CASES)
def test_no_setting_is_accepted_and_ignored(workflow, settings, small, tmp_path):
    path = WORKFLOWS / workflow
    settings = [*settings, *small.get(workflow, []), f"run.root={tmp_path}"]
    _, config = api.load(path, settings)
    if "training" in type(config).model_fields:
        once = ["training.epochs=1", "training.steps=", "training.progress=false"]
        settings = [*settings, *once]
        _, config = api.load(path, settings)
    with record_reads() as reads:
        run = api.train(path, settings)
        api.evaluate(run.path)
    unread = [key for key in reads.unread(config) if key not in PREDICTION]
    assert [key for key in unread if not is_refused(config, key)] == []
