"""Every setting of a shipped workflow is read by its run, or refused when it is changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ase.io
import pytest
from mesh_files import write_meshes

from scitoolkit import api
from scitoolkit.core.config import Config, ConfigProblems, Document
from scitoolkit.testing.config_reads import record_reads

ROOT = Path(__file__).resolve().parents[2]
WORKFLOWS = ROOT / "workflows"
SLOW = pytest.mark.slow
CONVECTION = ROOT / "datasets" / "rayleigh_benard" / "rb2d_ra1e6_pr1_s43_t20-23.75.h5"
PREDICT = {"field_surrogate/train.yaml": CONVECTION}  # settings that only `predict` reads
UNTRAINED = ("chaos/train.yaml",)  # `model: none` refuses the keys of `training`

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
    pytest.param("compress_snapshot/train.yaml", ["bound.value=2e-2"]),
    pytest.param("mesh_diffusion/train.yaml", ["split.validation=1", "split.test=1"]),
    pytest.param("kuramoto_sivashinsky/config.yaml", ["generator.cells=32", "draw.samples=2"]),
    pytest.param("equations/config.yaml", ["generator.frames=3", "draw.samples=2", "processes=1"]),
    pytest.param("vlasov_landau/config.yaml", ["generator.duration=1", "generator.frames=3"]),
    pytest.param(
        "vlasov_two_stream/config.yaml",
        ["generator.duration=1", "generator.frames=3", "draw.samples=2", "processes=1"],
    ),
    *(
        pytest.param(f"vlasov_{name}/config.yaml", ["generator.duration=1", "generator.frames=3"])
        for name in ("bump_on_tail", "ion_acoustic")
    ),
    pytest.param(  # after this time the layer of cold ions at a wall is thinner than a cell
        "vlasov_sheath/config.yaml",
        ["generator.duration=1", "generator.frames=3", "generator.tolerance=1"],
    ),
    pytest.param("chaos/train.yaml", ["pod.rank=2", "inputs=2", "leads=2"], marks=SLOW),
    pytest.param(
        "sst_search/search.yaml",
        ["budget.trials=2", "final.finalists=1", "final.seeds=1", "final.settings=[]"],
        marks=SLOW,
    ),
    pytest.param("rayleigh_benard/train.yaml", ["crop.per_epoch=4"], marks=SLOW),
    pytest.param("field_surrogate/train.yaml", ["repeats=1", "rollout.evaluate=2"], marks=SLOW),
]


@pytest.fixture
def small(small_sst, tmp_path, workflow):
    """Return the settings that point a workflow at a small part of its data."""
    if workflow == "mesh_diffusion/train.yaml":
        meshes = write_meshes(tmp_path / "m.h5", lambda fem: {"disk": fem.MeshTri.init_circle(3)})
        return [f"data.path={meshes}", "data.meshes=[disk]"]
    if workflow == "sst_search/search.yaml":
        quick = ["ensemble=1", "harmonics=[4]", "training.epochs=1", "training.progress=false"]
        return [f"settings={json.dumps([*quick, f'data.path={small_sst}'])}"]
    frames = tmp_path / "small.xyz"
    ase.io.write(frames, ase.io.read(ROOT / "datasets" / "acac" / "train_300K.xyz", "::20"))
    return {
        "sst_forecast/train.yaml": [f"data.path={small_sst}"],
        "acac_mace/train.yaml": [f"data.path=[{frames}]", f"data.test=[{frames}]"],
    }.get(workflow, [])


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
    settings = [*settings, *small, f"run.root={tmp_path}"]
    _, config = api.load(path, settings)
    if "training" in type(config).model_fields and workflow not in UNTRAINED:
        once = ["training.epochs=1", "training.steps=", "training.progress=false"]
        settings = [*settings, *once]
        _, config = api.load(path, settings)
    with record_reads() as reads:
        run = api.train(path, settings)
        api.evaluate(run.path)
        if workflow in PREDICT:
            api.predict(run.path, PREDICT[workflow], tmp_path / "predicted.nc")
    assert [key for key in reads.unread(config) if not is_refused(config, key)] == []
