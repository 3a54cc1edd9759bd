from __future__ import annotations

import numpy as np
import pytest
import xarray as xr
import yaml
from stopped_training import train_until

from scitoolkit import api
from scitoolkit.io.fields import write_fields


@pytest.fixture
def wave(tmp_path):
    """A wave that moves by three cells a sample along a periodic x; dims (time, x)."""

    def make(samples: int = 24, seed: int = 0, name: str = "wave.nc"):
        x = np.arange(32) / 32
        phases = np.random.default_rng(seed).uniform(0, 1, 3)
        t = np.arange(samples) * 3 / 32
        u = sum(
            np.cos(2 * np.pi * ((k + 1) * (x - t[:, None]) + phases[k])) / (k + 1) for k in range(3)
        )
        data = xr.Dataset(
            {"u": (("time", "x"), u.astype("f4"), {"units": "m/s", "long_name": "velocity"})},
            coords={"time": 0.5 * np.arange(samples), "x": x},
        )
        return write_fields(data, tmp_path / name)

    return make


@pytest.fixture
def job(tmp_path):
    """Write a configuration and return its path."""

    def make(data: dict, **sections) -> str:
        training = {
            "steps": 60,
            "batch_size": 4,
            "progress": False,
            "log_every": 20,
            "optimizer": {"name": "adamw", "lr": 3e-3},
        }
        training.update(sections.pop("training", {}))
        sections["rollout"] = {"long": 4, **sections.get("rollout", {})}
        config = {
            "domain": "emulation",
            "data": data,
            "run": {"root": str(tmp_path / "runs")},
            "model": {"name": "unet", "widths": [8, 12]},
            "training": training,
            **sections,
        }
        path = tmp_path / "job.yaml"
        path.write_text(yaml.safe_dump(config))
        return str(path)

    return make


@pytest.fixture
def wave_job(wave, job):
    def make(**sections):
        data = {
            "path": str(wave()),
            "test": str(wave(12, seed=1, name="test.nc")),
            "inputs": ["u"],
            "outputs": ["u"],
        }
        sections = {
            "split": {"train": 18, "validation": 6, "test": 0},
            "boundary": {"x": "circular"},
            **sections,
        }
        return job(data, **sections)

    return make


@pytest.fixture
def trained(wave_job):
    """A small emulator of the wave, trained for a few steps."""
    path = wave_job(transport={"x": 8}, symmetries={"shift": ["x"]}, rollout={"steps": 2})
    return api.train(path).path


@pytest.fixture
def interrupt():
    """Train until a step, at which a SIGTERM arrives."""
    return train_until
