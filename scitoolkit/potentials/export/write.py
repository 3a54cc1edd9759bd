"""Export of a trained potential: write, compile, and compare with the model."""

from __future__ import annotations

import pkgutil
from pathlib import Path
from typing import Any

import numpy as np
import torch

from scitoolkit.core.errors import ConfigError, NumericalError
from scitoolkit.io.atoms import Configuration
from scitoolkit.potentials.export.folder import compile_folder, write_folder
from scitoolkit.potentials.export.library import PotentialLibrary
from scitoolkit.potentials.export.source import LibrarySource, refuse
from scitoolkit.potentials.graph import configuration_graph
from scitoolkit.potentials.model import Potential
from scitoolkit.potentials.model_config import ModelConfig, models

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4}
"""Largest accepted difference from the model, relative to the largest value."""


def library_source(model: Potential, settings: ModelConfig) -> LibrarySource:
    """Return the library source of a model.

    Raises:
        ConfigError: the model cannot be exported.
    """
    if not settings.library:
        others = sorted(name for name in models if models.get(name).library)
        raise ConfigError(
            f"a potential {settings.name} cannot be exported",
            where="model.name",
            allowed=", ".join(others),
        )
    refuse({"long_range": model.long_range is not None}, f"a potential {settings.name}")
    source: LibrarySource = pkgutil.resolve_name(settings.library)(model)
    source.add_zbl(model.zbl)
    source.add_interaction(model.interaction)
    return source


def export_library(model: Potential, settings: ModelConfig, folder: Path) -> dict[str, Any]:
    """Write and compile the library of a model, and compare it with the model.

    Returns:
        `path`, `species`, `cutoff`, `precision`, `instructions`, `largest_difference`.

    Raises:
        ConfigError: the model cannot be exported.
        BackendError: there is no compiler.
        NumericalError: the results of library and model differ.
    """
    source = library_source(model.eval(), settings)
    write_folder(source, folder)
    compile_folder(source, folder)
    library = PotentialLibrary(folder)
    difference, allowed = largest_difference(model, library), TOLERANCE[source.dtype]
    if not difference <= allowed:
        raise NumericalError(
            f"the library differs from the model by {difference:.2g}",
            where=str(folder),
            allowed=f"{allowed:g}",
        )
    return {
        "path": str(folder),
        "species": list(library.species),
        "cutoff": library.cutoff,
        "precision": {"float": "float32", "double": "float64"}[source.real],
        "instructions": library.instructions,
        "largest_difference": difference,
    }


def random_frame(type_map: tuple[str, ...], cutoff: float, seed: int = 0) -> Configuration:
    """Return atoms of all species on a distorted grid in a triclinic cell, with one close pair."""
    generator, number, step = np.random.default_rng(seed), 3, 0.4 * cutoff
    grid = np.stack(np.meshgrid(*[np.arange(number)] * 3, indexing="ij"), -1).reshape(-1, 3)
    cell = number * step * (np.eye(3) + 0.1 * np.tri(3, k=-1))
    shares = (grid + 0.5 + generator.uniform(-0.15, 0.15, grid.shape)) / number
    kinds = generator.permutation(np.arange(len(grid)) % len(type_map))
    positions = shares @ cell
    positions = np.vstack([positions, positions[0] + [0.5, 0.4, 0.3]])
    species = np.array(type_map)[[*kinds, kinds[1]]]
    return Configuration(species, positions, cell, np.ones(3, dtype=bool))


@torch.no_grad()
def largest_difference(model: Potential, library: PotentialLibrary, seed: int = 0) -> float:
    """Return the largest relative difference in energies, forces and virial of random atoms."""
    frame = random_frame(model.type_map, model.cutoff, seed)
    graph = configuration_graph(frame, model.type_map, model.cutoff)
    wanted = {name: value.double().numpy() for name, value in model(graph).items()}
    computed = library.compute(frame.positions, graph["types"].numpy(), frame.cell, frame.pbc)
    worst = 0.0
    for name in ("atomic_energy", "forces", "virial"):
        value = wanted[name].reshape(computed[name].shape)
        scale = max(float(np.abs(value).max()), 1e-30)
        worst = max(worst, float(np.abs(value - computed[name]).max()) / scale)
    return worst
