"""A small file of trajectories on meshes, by the generator of the dataset mesh_diffusion."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import pytest

from scitoolkit.core.content import content_root


def write_meshes(path: Path, meshes: Callable[[Any], Mapping[str, Any]]) -> Path:
    """Write six trajectories on each of `meshes(skfem)`; skip the test where skfem is missing."""
    skfem = pytest.importorskip("skfem", exc_type=ImportError)
    source = content_root("datasets") / "mesh_diffusion" / "generate.py"
    spec = importlib.util.spec_from_file_location("generate_mesh_diffusion", source)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    with h5py.File(path, "w") as file:
        for name, mesh in meshes(skfem).items():
            for key, values in module.simulate(mesh, 6, seed=1).items():
                file.create_dataset(f"{name}/{key}", data=values)
    return path
