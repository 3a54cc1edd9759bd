"""Campaigns of frames of atoms, made by a generator and read as potentials read them."""

from __future__ import annotations

import yaml

from scitoolkit import api
from scitoolkit.io import open_atoms


def made_frames(folder, **generator):
    """Return the frames of two samples of a generator that displaces atoms."""
    document = {
        "domain": "generate",
        "run": {"root": str(folder)},
        "generator": generator,
        "draw": {"samples": 2, "parameters": {"displacement": {"low": 0.02, "high": 0.2}}},
    }
    (folder / "config.yaml").write_text(yaml.safe_dump(document))
    run = api.train(folder / "config.yaml")
    assert api.evaluate(run.path).metrics["samples"] == 2
    return open_atoms(sorted((run.path / "campaign").glob("*.xyz")))
