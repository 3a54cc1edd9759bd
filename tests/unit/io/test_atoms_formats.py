"""Every registered format of atomic configurations keeps its contract."""

from __future__ import annotations

import ase
import ase.db
import ase.io
import numpy as np
import pytest
from ase.calculators.singlepoint import SinglePointCalculator
from ase.stress import full_3x3_to_voigt_6_stress

from scitoolkit.core.errors import DataError
from scitoolkit.io.atoms import LabelConfig, atoms_formats, open_atoms
from scitoolkit.testing import AtomsFormatContract


class TestExtendedXYZ(AtomsFormatContract):
    @pytest.fixture
    def format(self):
        return atoms_formats.get("extxyz")

    def write(self, frames, names, folder):
        path, images = folder / "frames.xyz", [_image(frame, names) for frame in frames]
        ase.io.write(path, images, format="extxyz")
        return path


class TestAseDatabase(AtomsFormatContract):
    @pytest.fixture
    def format(self):
        return atoms_formats.get("asedb")

    def write(self, frames, names, folder):
        path, images = folder / "frames.db", [_image(frame, names) for frame in frames]
        with ase.db.connect(path) as database:
            for image in images:
                columns = {k: v for k, v in image.arrays.items() if k == names.forces_key}
                database.write(image, data={**image.info, **columns})
        return path


class TestDeepmd(AtomsFormatContract):
    """A system for each frame, because the frames have different compositions."""

    periodic = (0, 3)

    @pytest.fixture
    def format(self):
        return atoms_formats.get("deepmd")

    def write(self, frames, names, folder):
        for number, frame in enumerate(frames):
            system = folder / "frames" / f"system_{number:02}"
            (system / "set.000").mkdir(parents=True)
            types = np.unique(frame.species)
            (system / "type_map.raw").write_text("\n".join(types))
            np.savetxt(system / "type.raw", np.searchsorted(types, frame.species), fmt="%d")
            values = {
                "coord": frame.positions,
                "box": frame.cell,
                "energy": frame.energy,
                "force": frame.forces,
                "virial": frame.virial,
            }
            if not frame.pbc.any():
                (system / "nopbc").write_text("")
                del values["box"]
            for name, value in values.items():
                if value is not None:
                    np.save(system / "set.000" / f"{name}.npy", np.reshape(value, (1, -1)))
        return folder / "frames"


def _image(frame, names):
    """Return an `ase.Atoms` with stress of ASE's sign, or with labels of other names."""
    atoms = ase.Atoms(frame.species, frame.positions, cell=frame.cell, pbc=frame.pbc)
    if names == LabelConfig():
        results = {"energy": frame.energy, "forces": frame.forces}
        if frame.virial is not None:
            stress = -frame.virial / atoms.get_volume()
            results["stress"] = full_3x3_to_voigt_6_stress(stress)
        given = {k: v for k, v in results.items() if v is not None}
        atoms.calc = SinglePointCalculator(atoms, **given)
        return atoms
    atoms.info[names.energy_key] = frame.energy
    atoms.set_array(names.forces_key, frame.forces)
    if frame.virial is not None:
        atoms.info[names.virial_key] = frame.virial
    return atoms


def test_forces_of_a_database_that_are_not_numbers_by_atom_are_refused(tmp_path):
    with ase.db.connect(tmp_path / "a.db") as database:
        for forces in ([[0.0, 0.0, 1.0]], ["x", "y"]):
            database.write(ase.Atoms("H2", [[0, 0, 0], [0, 0, 1]]), data={"forces": forces})
    source = open_atoms(tmp_path / "a.db")
    for index in range(2):
        with pytest.raises(DataError, match="forces has no value for each atom"):
            source[index]
