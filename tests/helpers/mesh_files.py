"""A small file of trajectories on meshes, by the generator mesh_tracer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import h5py
import pytest

from scitoolkit.generators.mesh_tracer import MeshTracer


def write_meshes(
    path: Path, meshes: Callable[[Any], Mapping[str, Any]], trajectories: int = 6
) -> Path:
    """Write trajectories on each of `meshes(skfem)`; skip the test where skfem is missing."""
    skfem = pytest.importorskip("skfem", exc_type=ImportError)
    generator = MeshTracer(meshes=path.parent, trajectories=trajectories)
    with h5py.File(path, "w") as file:
        for name, mesh in meshes(skfem).items():
            for key, values in generator.simulate(mesh, seed=1)[0].items():
                file.create_dataset(f"{name}/{key}", data=values)
    return path
