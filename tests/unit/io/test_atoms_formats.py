"""Every registered format of atomic configurations keeps its contract."""

from __future__ import annotations

import gzip

import ase
import ase.db
import ase.io
import h5py
import numpy as np
import pytest
from ase.calculators.singlepoint import SinglePointCalculator
from ase.constraints import FixAtoms, FixCartesian, FixCom, FixedLine, FixedPlane
from ase.stress import full_3x3_to_voigt_6_stress

from scitoolkit.core.errors import DataError
from scitoolkit.io.atoms import LabelConfig, atoms_formats, open_atoms
from scitoolkit.testing import AtomsFormatContract
from tests.helpers.vasp_files import outcar, steps, vasprun


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


class TestAseTrajectory(AtomsFormatContract):
    @pytest.fixture
    def format(self):
        return atoms_formats.get("asedb")

    def write(self, frames, names, folder):
        path, images = folder / "frames.traj", [_image(frame, names) for frame in frames]
        ase.io.write(path, images)
        return path

    def test_labels_have_the_configured_names(self, format, folder):
        """A trajectory has columns under ASE's names only, so that others are refused."""
        names = LabelConfig(energy_key="REF_energy")
        atoms = ase.Atoms("H2", [[0, 0, 0], [0, 0, 1]], info={"REF_energy": -2.0})
        ase.io.write(folder / "a.traj", atoms)
        assert open_atoms(folder / "a.traj", names)[0].energy == -2.0
        with pytest.raises(DataError, match="energy_key=REF_energy"):
            open_atoms(folder / "a.traj")[0]
        with pytest.raises(DataError, match="no forces called 'REF_forces'"):
            open_atoms(folder / "a.traj", names.model_copy(update={"forces_key": "REF_forces"}))[0]


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


class TestDeepmdHDF5(TestDeepmd):
    """The same systems in the groups of one file, as dpdata writes them."""

    def write(self, frames, names, folder):
        (folder / "npy").mkdir()
        root = super().write(frames, names, folder / "npy")
        path = folder / "frames.hdf5"
        with h5py.File(path, "w") as file:
            for source in sorted(p for p in root.rglob("*") if p.is_file()):
                name = str(source.relative_to(root))
                if source.suffix == ".npy":
                    file[name] = np.load(source)
                elif source.name == "type.raw":
                    file[name] = np.loadtxt(source, dtype=int, ndmin=1)
                elif source.name == "type_map.raw":
                    file[name] = np.array(source.read_text().split(), dtype="S")
                else:
                    file[name] = True
        return path


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


@pytest.mark.parametrize(("name", "write"), [("vasprun.xml", vasprun), ("OUTCAR", outcar)])
def test_outputs_of_vasp_have_units_and_signs_of_ase(tmp_path, name, write, caplog):
    trajectory = steps(3)
    path = tmp_path / f"{name}.gz"
    path.write_bytes(gzip.compress(write(trajectory).encode()))
    frames = open_atoms(path)
    frames.check(virial=True)
    assert "energy and free_energy differ by up to 10 meV/atom" in caplog.text
    assert [frames.num_atoms(k) for k in range(len(frames))] == [2, 2, 2]
    named = open_atoms(path, LabelConfig(energy_key="free_energy"))
    caplog.clear()
    named.check()
    assert not caplog.text
    for step, frame, free in zip(trajectory, frames, named, strict=True):
        assert frame.species.tolist() == ["Na", "Cl"]
        assert frame.pbc.all()
        np.testing.assert_allclose(frame.positions, step.scaled @ step.cell, atol=1e-6)
        np.testing.assert_allclose(frame.cell, step.cell, atol=1e-8)
        np.testing.assert_allclose((frame.energy, free.energy), (step.energy, step.energies[-1]))
        np.testing.assert_allclose(frame.forces, step.forces, atol=1e-6)
        # VASP's stress is positive under compression, as the virial; 1 kbar is 0.1 GPa.
        volume = np.linalg.det(step.cell)
        expected = step.stress * 0.1 * volume / 160.21766208
        np.testing.assert_allclose(frame.virial, expected, rtol=1e-5)


@pytest.mark.parametrize(("name", "write"), [("vasprun.xml", vasprun), ("OUTCAR", outcar)])
def test_steps_of_vasp_that_did_not_converge_are_left_out(tmp_path, name, write, caplog):
    trajectory = steps(3)
    trajectory[1].energies = [-6.0, -6.5, -6.8, -7.0]
    path = tmp_path / name
    path.write_text(write(trajectory, most=4))
    frames = open_atoms(path)
    assert [round(frame.energy, 6) for frame in frames] == [-6.98, -7.18]
    assert f"{path}: left out, since the electronic steps did not converge: steps 1" in caplog.text
    assert frames[1].where == f"{path}: step 2"


def test_vasp_writes_the_forces_of_fixed_atoms(tmp_path):
    trajectory = steps(1)
    trajectory[0].forces[0] = 0.0  # by symmetry
    (tmp_path / "vasprun.xml").write_text(vasprun(trajectory, fixed=True))
    np.testing.assert_allclose(open_atoms(tmp_path / "vasprun.xml")[0].forces, trajectory[0].forces)


@pytest.mark.parametrize("name", ["vasprun.xml", "OUTCAR"])
def test_damaged_outputs_of_vasp_are_refused(tmp_path, name):
    text = (vasprun if name.endswith("xml") else outcar)(steps(1))
    for share in (0.0, 0.1, 0.5):
        (tmp_path / name).write_text(text[: int(share * len(text))])
        with pytest.raises(DataError, match=name):
            open_atoms(tmp_path / name).check()


@pytest.mark.parametrize("suffix", [".xyz", ".traj", ".db"])
@pytest.mark.parametrize(
    "constraint",
    [
        FixAtoms([0, 2]),
        FixCartesian([0, 1], mask=(1, 1, 0)),
        FixedLine([0, 1], (0, 0.6, 0.8)),
        FixedPlane([2], (0.6, 0, 0.8)),
    ],
)
def test_forces_without_the_components_that_ase_fixes_are_refused(tmp_path, suffix, constraint):
    if suffix == ".xyz" and not isinstance(constraint, FixAtoms | FixCartesian):
        return  # not in extxyz files
    atoms = ase.Atoms("H3", [[0, 0, 0], [0, 0, 0.8], [0, 0.8, 0]], constraint=constraint)
    raw = np.random.default_rng(0).standard_normal((3, 3))
    raw[:, 0] = 0.0
    atoms.calc = SinglePointCalculator(atoms, energy=-1.0, forces=raw)
    # ASE writes the results of the calculator, to which no constraint was applied.
    ase.io.write(tmp_path / f"raw{suffix}", atoms)
    np.testing.assert_allclose(open_atoms(tmp_path / f"raw{suffix}")[0].forces, raw, atol=1e-8)
    atoms.calc = SinglePointCalculator(atoms, energy=-1.0, forces=atoms.get_forces())
    ase.io.write(tmp_path / f"applied{suffix}", atoms)
    with pytest.raises(DataError, match=r"all \d fixed atoms.*apply_constraint=False"):
        open_atoms(tmp_path / f"applied{suffix}")[0]


def test_forces_that_sum_to_zero_are_those_of_a_fixed_centre_of_mass_too(tmp_path):
    atoms = ase.Atoms("H2", [[0, 0, 0], [0, 0, 0.8]], constraint=FixCom())
    atoms.calc = SinglePointCalculator(atoms, energy=0.0, forces=[[0, 0, 1], [0, 0, -1]])
    ase.io.write(tmp_path / "a.traj", atoms)
    np.testing.assert_array_equal(open_atoms(tmp_path / "a.traj")[0].forces[:, 2], [1, -1])


@pytest.mark.parametrize("suffix", ["gz", "bz2", "xz"])
def test_compressed_xyz_is_read_at_any_place_and_a_damaged_one_refused(tmp_path, suffix):
    images = [ase.Atoms("H2", [[0, 0, 0], [0, 0, 0.7 + k]], info={"energy": k}) for k in range(3)]
    path = tmp_path / f"a.xyz.{suffix}"
    ase.io.write(path, images, format="extxyz")
    frames = open_atoms(path)
    assert [frames[k].energy for k in (2, 0, 1)] == [2, 0, 1]
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(DataError, match=path.name):
        open_atoms(path)[0]


def test_a_format_that_is_not_read_names_its_conversion(tmp_path):
    (tmp_path / "cp2k.out").write_text("CP2K| version string: CP2K version 2024.1\n")
    with pytest.raises(DataError, match=r"ase convert cp2k.out frames.xyz, or dpdata cp2k.out"):
        open_atoms(tmp_path / "cp2k.out")


def test_raw_files_of_deepmd_without_sets_name_their_conversion(tmp_path):
    (tmp_path / "type.raw").write_text("0\n")
    (tmp_path / "type_map.raw").write_text("H\n")
    with pytest.raises(DataError, match=r"no set\.\* folder.*-i deepmd/raw -o deepmd/npy"):
        open_atoms(tmp_path)
