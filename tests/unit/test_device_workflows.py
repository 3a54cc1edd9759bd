"""Workflows that train a network, on a device other than the CPU: train, evaluate, report.

The quick ones run with every test of the device contract, on fewer frames, cells and steps; `slow`
ones are all others that train one, and the forecast of all cells, as they are shipped except for
the number of steps.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from coarse_field import write_coarse_field

from scitoolkit import api
from scitoolkit.testing.device import PRETENDED, require_gpu

pytestmark = pytest.mark.device
ROOT = Path(__file__).resolve().parents[2]
QUICK = {
    "water_deepmd": ("training.steps=2", "statistics_frames=4"),
    "field_surrogate": ("training.steps=2", "rollout.evaluate=1", "rollout.long=0"),
    "rayleigh_benard": ("training.steps=2",),
    "node_classification": ("training.epochs=2",),
    "sst_forecast": ("training.epochs=1", "ensemble=1", "harmonics=[2]", "pod.rank=2"),
}
PRETENDED_WITH = {
    "water_deepmd": ("model.embedding=[4,8]", "model.axis_neurons=4", "model.fitting=[8]"),
    "field_surrogate": ("repeats=1", "model.widths=[8,8]"),
    "rayleigh_benard": ("crop.per_epoch=4", "model.encoder.widths=[8,8]"),
}
"""Settings of quick workflows on a pretended GPU: its rules do not depend on the size of a job."""

SLOW = {
    "sst_forecast": ("training.epochs=1", "ensemble=1"),
    "acac_mace": ("training.steps=2", "statistics_frames=4"),
    "fine_tune": ("training.steps=2", "statistics_frames=4"),
    "silicon_mace": ("training.steps=2",),
    "vlasov_surrogate": ("training.steps=2",),
    "sst_search": (),
    "delay_ring": ("training.epochs=1",),
    "delay_search": ("settings=[training.epochs=1]", "final.settings=[training.epochs=1]"),
}
APPLIED_ON_THE_HOST = {"sst_forecast", "sst_search", "delay_ring", "delay_search"}
"""Their networks are trained on the GPU and applied on the CPU, in less time than a copy takes."""


def few_frames(name: str, folder: Path) -> Path | None:
    """Return a file of two test frames of a potential's workflow; None for other workflows."""
    if name in ("acac_mace", "fine_tune"):
        lines = (ROOT / "datasets/acac/test_MD_300K.xyz").read_text().splitlines(keepends=True)
        path = folder / "two.xyz"
        path.write_text("".join(lines[: 2 * (int(lines[0]) + 2)]))
        return path
    if name == "water_deepmd":
        path = shutil.copytree(ROOT / "datasets/water_deepmd/data_3", folder / "two")
        for array in path.glob("set.*/*.npy"):
            np.save(array, np.load(array)[:2])
        return path
    return None


# Of torch for GPUs, not of the workflows: the pretended GPU has no cuDNN.
@pytest.mark.filterwarnings("ignore:PyTorch was compiled without cuDNN")
@pytest.mark.filterwarnings("ignore:.*torch.jit.script")
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *(pytest.param(*case, id=case[0]) for case in QUICK.items()),
        *(
            pytest.param(*case, id=f"{case[0]}-slow", marks=pytest.mark.slow)
            for case in SLOW.items()
        ),
    ],
)
def test_workflow(
    name: str, settings: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_gpu()
    monkeypatch.chdir(tmp_path)
    if settings == QUICK.get(name):
        if torch.cuda.get_device_name() == PRETENDED:
            settings = (*settings, *PRETENDED_WITH.get(name, ()))
        if name == "sst_forecast":
            settings = (*settings, f"data.path={write_coarse_field(tmp_path)}")
    run = api.train(name, settings)
    data = few_frames(name, tmp_path)
    results = api.evaluate(run.path, data)
    assert all(np.isfinite(v) for v in results.metrics.values() if isinstance(v, float))
    text = json.dumps(results.model_dump(mode="json"))
    assert ("Applied on cuda" in text) == (name not in APPLIED_ON_THE_HOST)
    on_cpu = api.evaluate(run.path, data, device="cpu")
    for metric, value in on_cpu.metrics.items():
        if isinstance(value, float) and not metric.endswith(("seconds", "_s")):
            assert results.metrics[metric] == pytest.approx(value, rel=1e-3, abs=1e-6), metric
