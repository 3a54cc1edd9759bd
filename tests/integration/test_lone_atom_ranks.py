"""Two processes train a potential with E0 of isolated atoms like one."""

from __future__ import annotations

from pathlib import Path

import ase.io
import pytest
from safetensors.numpy import load_file

ACAC = Path(__file__).resolve().parents[2] / "datasets" / "acac"


@pytest.mark.multiproc
@pytest.mark.parametrize("strategy", ["ddp", "sharded"])
def test_two_ranks_train_what_one_trains(cli, tmp_path, strategy):
    images = [*ase.io.read(ACAC / "train_300K.xyz", ":14")]
    images += ase.io.read(ACAC / "isolated_atoms.xyz", ":")
    ase.io.write(tmp_path / "small.xyz", images, format="extxyz")
    (tmp_path / "train.yaml").write_text(
        "domain: potentials\n"
        "data: {path: [small.xyz]}\n"
        "model: {name: se_e2_a, cutoff: 4, embedding: [4, 8], axis_neurons: 4, fitting: [8]}\n"
        "training: {steps: 6, batch_size: 4, progress: false, "
        f"optimizer: {{name: adam, lr: 1e-3}}, strategy: {strategy}}}\n"
    )
    weights = []
    for ranks in (1, 2):
        done = cli("train", "train.yaml", f"run.root=r{ranks}", "--nproc", str(ranks))
        assert done.code == 0, done.err
        (model,) = (tmp_path / f"r{ranks}").glob("*/*/model")
        weights.append(load_file(model / "weights.safetensors"))
    assert "interaction.energy" in weights[0]
    for name, one in weights[0].items():
        scale = max(1.0, abs(one).max(initial=0.0))
        assert abs(weights[1][name] - one).max(initial=0.0) <= 1e-9 * scale, name
