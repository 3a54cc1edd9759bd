"""Two processes train the potential that one trains."""

from __future__ import annotations

from pathlib import Path

import ase.io
import pytest
from safetensors.numpy import load_file

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.multiproc
def test_two_ranks_train_what_one_trains(cli, tmp_path):
    images = ase.io.read(ROOT / "datasets" / "acac" / "train_300K.xyz", ":14")
    ase.io.write(tmp_path / "small.xyz", images, format="extxyz")
    (tmp_path / "train.yaml").write_text(
        "domain: potentials\n"
        "data: {train: [small.xyz], validation: 0.15}\n"
        "model: {name: se_e2_a, cutoff: 4, embedding: [4, 8], axis_neurons: 4, fitting: [8]}\n"
        "training: {steps: 6, batch_size: 4, progress: false, "
        "optimizer: {name: adam, lr: 1e-3}}\n"
    )
    weights = []
    for ranks in (1, 2):
        done = cli("train", "train.yaml", f"run.root=r{ranks}", "--nproc", str(ranks))
        assert done.code == 0, done.err
        (model,) = (tmp_path / f"r{ranks}").glob("*/*/model")
        weights.append(load_file(model / "weights.safetensors"))
    for name, one in weights[0].items():
        scale = max(1.0, abs(one).max(initial=0.0))
        assert abs(weights[1][name] - one).max(initial=0.0) <= 1e-9 * scale, name
