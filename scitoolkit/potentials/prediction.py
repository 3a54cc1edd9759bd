"""Predictions of a potential for the configurations of a file, as netCDF or extxyz."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from torch import Tensor

from scitoolkit.core.devices import apply
from scitoolkit.core.errors import ConfigError, NumericalError
from scitoolkit.core.files import replacing
from scitoolkit.io.atoms import AtomsCollection, Configuration, ase
from scitoolkit.io.parts import Parts, by_size
from scitoolkit.io.stream import StreamedVariable, open_writer
from scitoolkit.potentials.graph import configuration_graph
from scitoolkit.potentials.model import Potential
from scitoolkit.potentials.stress import voigt_stress
from scitoolkit.training.ranks.rounds import completed

ATOMS = 20_000
"""Approximate number of atoms of a part; a configuration is never divided."""


def predict_frame(model: Potential, frame: Configuration) -> dict[str, np.ndarray]:
    """Return the prediction for one configuration, as `Potential.forward`, float64 arrays.

    Raises:
        NumericalError: a value is not finite.
    """
    model.eval()
    outputs = apply(model, configuration_graph(frame, model.type_map, model.cutoff))
    return finite_arrays(outputs, frame.where)


def finite_arrays(outputs: Mapping[str, Tensor], where: str = "") -> dict[str, np.ndarray]:
    """Return a potential's outputs as float64 arrays.

    Args:
        outputs: of `Potential.forward`, on the CPU.
        where: the configuration, for messages.

    Raises:
        NumericalError: a value is not finite.
    """
    arrays = {name: value.double().numpy() for name, value in outputs.items()}
    for name, values in arrays.items():
        if not np.isfinite(values).all():
            raise NumericalError(
                f"the predicted {name} is not finite", where=where, fix="precision float64"
            )
    return arrays


def to_ase(frame: Configuration) -> Any:
    """Return the `ase.Atoms` of a configuration, without its labels."""
    return ase("ASE's Atoms").Atoms(
        list(frame.species), positions=frame.positions, cell=frame.cell, pbc=frame.pbc
    )


def write_predictions(
    model: Potential, frames: AtomsCollection, output: Path, about: Mapping[str, str] | None = None
) -> None:
    """Write predictions of all configurations in memory that does not grow with their number.

    Finished parts are stored next to the output until it is complete, so that the same call
    continues after an interruption. Several processes divide the parts.

    Args:
        model: the potential.
        frames: configurations, with or without labels.
        output: `.nc` (dims `configuration` and `atom`, the atoms of all configurations
            concatenated): energy, virial, forces and atomic energies; or `.xyz`: energy, forces,
            and the stress of periodic configurations (see `voigt_stress`).
        about: identifies model and frames; stored with the parts.

    Raises:
        ConfigError: another suffix.
        DataError: parts of another prediction are there.
    """
    output = Path(output)
    writers = {".nc": _write_netcdf, ".xyz": _write_xyz, ".extxyz": _write_xyz}
    writer = writers.get(output.suffix.lower())
    if writer is None:
        raise ConfigError(f"output {output}", allowed=", ".join(writers), fix="-o predictions.nc")
    if writer is _write_xyz:
        ase("writing extxyz")
    sizes = [frames.num_atoms(i) for i in range(len(frames))]
    pieces = by_size(sizes, ATOMS)
    parts = Parts(output, len(pieces), {**(about or {}), "atoms": ATOMS, "frames": len(frames)})

    def work(number: int) -> dict[str, np.ndarray]:
        piece = [frames[i] for i in pieces[number]]
        predictions = [predict_frame(model, frame) for frame in piece]
        return {
            **{k: np.concatenate([f[k] for f in predictions]) for k in VARIABLES},
            **{k: np.concatenate([getattr(f, k) for f in piece]) for k in ("positions", "species")},
            "cell": np.stack([f.cell for f in piece]),
            "pbc": np.stack([f.pbc for f in piece]),
        }

    with completed(parts, work) as writes:
        if writes:
            writer(parts, pieces, sizes, output)
            parts.remove()


VARIABLES = {
    "energy": (("configuration",), "eV"),
    "virial": (("configuration", "row", "column"), "eV"),
    "forces": (("atom", "direction"), "eV/Å"),
    "atomic_energy": (("atom",), "eV"),
}


def _write_netcdf(
    parts: Parts, pieces: Sequence[range], sizes: Sequence[int], output: Path
) -> None:
    lengths = {
        "configuration": len(sizes),
        "atom": sum(sizes),
        "row": 3,
        "column": 3,
        "direction": 3,
    }

    def variable(dims: tuple[str, ...], dtype: str, attributes: Mapping[str, str]) -> Any:
        shape = tuple(lengths[d] for d in dims)
        return StreamedVariable(dims, shape, attributes, dtype)

    variables = {
        name: variable(
            dims,
            "float64",
            {"units": unit}
            | ({"coordinates": "atom_configuration species"} if dims[0] == "atom" else {}),
        )
        for name, (dims, unit) in VARIABLES.items()
    }
    variables["atom_configuration"] = variable(("atom",), "int64", {})
    variables["species"] = variable(("atom",), "str", {})
    coordinates = xr.Dataset(
        coords={"direction": ["x", "y", "z"]}, attrs={"title": "predicted energies and forces"}
    )
    with open_writer(output, coordinates, variables) as file:
        atom = 0
        for number, piece in enumerate(pieces):
            arrays = parts.load(number)
            counts = [sizes[i] for i in piece]
            arrays["atom_configuration"] = np.repeat(np.arange(piece.start, piece.stop), counts)
            own = {
                "configuration": slice(piece.start, piece.stop),
                "atom": slice(atom, atom + sum(counts)),
            }
            for name, made in variables.items():
                values = arrays[name].astype(object) if made.dtype == "str" else arrays[name]
                file.write(name, (own[made.dims[0]],), values)
            atom += sum(counts)


def _write_xyz(parts: Parts, pieces: Sequence[range], sizes: Sequence[int], output: Path) -> None:
    package = ase("writing extxyz")
    from ase.calculators.singlepoint import SinglePointCalculator

    with replacing(output) as temporary, temporary.open("w") as file:
        for number, piece in enumerate(pieces):
            arrays, atom = parts.load(number), 0
            for place, i in enumerate(piece):
                own = slice(atom, atom + sizes[i])
                atoms = to_ase(
                    Configuration(
                        arrays["species"][own],
                        arrays["positions"][own],
                        arrays["cell"][place],
                        arrays["pbc"][place],
                    )
                )
                labels = {"energy": float(arrays["energy"][place]), "forces": arrays["forces"][own]}
                stress = voigt_stress(arrays["virial"][place], atoms)
                if stress is not None:
                    labels["stress"] = stress
                atoms.calc = SinglePointCalculator(atoms, **labels)
                package.io.write(file, atoms, format="extxyz")
                atom = own.stop
