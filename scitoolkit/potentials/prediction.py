"""Energies and forces of the configurations of a file, written for xarray or for ASE."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import xarray as xr

from scitoolkit.core.errors import ConfigError
from scitoolkit.io.atoms import AtomsCollection, Configuration, ase
from scitoolkit.io.fields import write_fields
from scitoolkit.potentials.graph import configuration_graph
from scitoolkit.potentials.model import Potential


def predict_frame(model: Potential, frame: Configuration) -> dict[str, np.ndarray]:
    """Return energy, forces, virial and atomic energies of one configuration, eV and Å."""
    model.eval()
    with torch.no_grad():
        found = model(configuration_graph(frame, model.type_map, model.cutoff))
    return {name: value.double().numpy() for name, value in found.items()}


def to_ase(frame: Configuration) -> Any:
    """Return the `ase.Atoms` of a configuration, without its labels."""
    return ase("ASE's Atoms").Atoms(
        list(frame.species), positions=frame.positions, cell=frame.cell, pbc=frame.pbc
    )


def write_predictions(model: Potential, frames: AtomsCollection, output: Path) -> None:
    """Write predictions of all configurations.

    Args:
        model: the potential.
        frames: labels are not needed.
        output: `.nc` (dims `configuration` and `atom`, all atoms one after the other) or `.xyz`.

    Raises:
        ConfigError: another suffix.
    """
    writers = {".nc": _write_netcdf, ".xyz": _write_xyz, ".extxyz": _write_xyz}
    writer = writers.get(Path(output).suffix.lower())
    if writer is None:
        raise ConfigError(f"output {output}", allowed=", ".join(writers), fix="-o predictions.nc")
    writer([(frame, predict_frame(model, frame)) for frame in frames], Path(output))


def _write_netcdf(found: list[tuple[Configuration, dict[str, np.ndarray]]], output: Path) -> None:
    numbers = np.repeat(np.arange(len(found)), [len(f.species) for f, _ in found])
    data: dict[str, Any] = {
        "energy": ("configuration", np.concatenate([v["energy"] for _, v in found]), "eV"),
        "virial": (
            ("configuration", "row", "column"), np.concatenate([v["virial"] for _, v in found]),
            "eV",
        ),
        "forces": (("atom", "direction"), np.concatenate([v["forces"] for _, v in found]), "eV/Å"),
        "atomic_energy": ("atom", np.concatenate([v["atomic_energy"] for _, v in found]), "eV"),
    }  # fmt: skip
    dataset = xr.Dataset({k: (d, v, {"units": u}) for k, (d, v, u) in data.items()})
    dataset = dataset.assign_coords(
        atom_configuration=("atom", numbers),
        species=("atom", np.concatenate([f.species for f, _ in found]).astype(str)),
        direction=["x", "y", "z"],
    )
    write_fields(dataset.assign_attrs(title="predicted energies and forces"), output)


def _write_xyz(found: list[tuple[Configuration, dict[str, np.ndarray]]], output: Path) -> None:
    package = ase("writing extxyz")
    from ase.calculators.singlepoint import SinglePointCalculator

    images = []
    for frame, values in found:
        atoms = to_ase(frame)
        atoms.calc = SinglePointCalculator(
            atoms, energy=float(values["energy"][0]), forces=values["forces"]
        )
        images.append(atoms)
    package.io.write(output, images, format="extxyz")
