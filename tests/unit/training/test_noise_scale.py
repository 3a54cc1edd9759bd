"""The noise scale of gradients whose mean and noise are known, and of a training."""

from __future__ import annotations

import json

import pytest
import torch

from scitoolkit.core.errors import ConfigError
from scitoolkit.testing.loaders import TensorLoader
from scitoolkit.training import Trainer, TrainingConfig
from scitoolkit.training.noise_scale import NoiseScale


def test_known_noise_is_found_within_a_tenth():
    generator = torch.Generator().manual_seed(0)
    mean, noise, small, ranks = torch.ones(40) * 0.5, 3.0, 8, 4
    scale = NoiseScale(small, small * ranks)
    for _ in range(2000):
        shape = (ranks, 40)
        shares = mean + noise / small**0.5 * torch.randn(shape, generator=generator)
        scale.update(float(shares.square().sum(1).mean()), float(shares.mean(0).square().sum()))
    exact = 40 * noise**2 / float(mean.square().sum())
    assert scale.samples() == pytest.approx(exact, rel=0.1)


def test_one_process_is_refused():
    from training_worker import Regression, data

    config = TrainingConfig(steps=1, batch_size=12, progress=False, noise_scale=True)
    with pytest.raises(ConfigError, match="several processes"):
        Trainer(Regression(), config).fit(TensorLoader(data(), 12))


@pytest.mark.multiproc
def test_two_processes_write_it_and_train_to_the_same_bits(start, whole, tmp_path):
    _, weights = start(2, training={"noise_scale": True})
    assert all(torch.equal(weights[name], value) for name, value in whole(2).items())
    (metrics,) = tmp_path.glob("run/*/metrics.jsonl")
    rows = [json.loads(line) for line in metrics.read_text().splitlines()]
    found = [row["value"] for row in rows if row.get("name") == "train/noise_scale"]
    assert found
    assert all(value > 0 for value in found)
