from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from advected_waves import LENGTH, wave_fields

from scitoolkit import api
from scitoolkit.io.fields import write_fields


@pytest.fixture(scope="session")
def job_file(tmp_path_factory):
    """Return a function that writes a configuration of a small job: sections to replace."""
    folder = tmp_path_factory.mktemp("superresolution")
    train = write_fields(wave_fields(), folder / "train.nc")
    test = write_fields(wave_fields(phase=0.37), folder / "test.nc")
    count = iter(range(1000))

    def make(**sections) -> Path:
        config = {
            "domain": "superresolution",
            "data": {
                "path": str(train),
                "test": str(test),
                "fields": ["u"],
                "dims": ["t", "x"],
                "periodic": {"x": LENGTH},
            },
            "crop": {
                "size": {"t": 9},
                "every": {"t": 4, "x": 4},
                "points": 128,
                "per_epoch": 16,
                "symmetries": {"shift": ["x"]},
            },
            "pde": {"equations": {"advection": "dif(u,t) + speed*dif(u,x)"}, "weight": 0.05},
            "model": {
                "encoder": {"widths": [8, 16], "channels": 8},
                "decoder": {"name": "mlp", "widths": [16, 16]},
            },
            "training": {"batch_size": 8, "steps": 4, "progress": False},
            "run": {"root": str(folder / "runs")},
        }
        for key, section in sections.items():
            config[key] = (
                {**config.get(key, {}), **section} if isinstance(section, dict) else section
            )
        path = folder / f"job{next(count)}.yaml"
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        return path

    return make


@pytest.fixture(scope="session")
def trained(job_file) -> Path:
    """Return the run directory of a short training."""
    training = {
        "batch_size": 8,
        "steps": 80,
        "progress": False,
        "optimizer": {"name": "muon", "lr": 5e-3},
        "schedule": {"name": "cosine"},
    }
    return api.run(job_file(training=training)).path
