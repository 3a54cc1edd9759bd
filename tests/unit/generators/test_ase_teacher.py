from __future__ import annotations

import numpy as np
import pytest
from frame_campaigns import made_frames

from scitoolkit.core.errors import BackendError, ConfigError, DataError, NumericalError
from scitoolkit.generators.ase_teacher import AseTeacher
from scitoolkit.generators.base import Origin
from scitoolkit.io import open_atoms
from scitoolkit.testing import GeneratorContract

ase = pytest.importorskip("ase")


@pytest.fixture
def copper(tmp_path):
    """A file of two periodic structures."""
    from ase.build import bulk
    from ase.io import write

    file = tmp_path / "copper.xyz"
    write(file, [bulk("Cu", cubic=True), bulk("Cu") * 2], format="extxyz")
    return file


class TestAseTeacher(GeneratorContract):
    @pytest.fixture
    def generator(self, copper):
        return AseTeacher(structures=copper, calculator="emt", frames=3, strain=0.01)


def test_labels_are_those_of_the_calculator_and_forces_its_derivatives(copper):
    from ase.calculators.emt import EMT

    teacher = AseTeacher(structures=copper, calculator="emt", frames=4, strain=0.02)
    frames = teacher.generate(5).frames
    assert {len(f) for f in frames} == {4, 8}
    for frame in frames:
        fresh = frame.copy()
        fresh.calc = EMT()
        assert fresh.get_potential_energy() == pytest.approx(frame.get_potential_energy())
        assert np.allclose(fresh.get_stress(), frame.get_stress())
        fresh.positions[0, 0] += 1e-5
        above = fresh.get_potential_energy()
        fresh.positions[0, 0] -= 2e-5
        slope = (fresh.get_potential_energy() - above) / 2e-5
        assert slope == pytest.approx(frame.get_forces()[0, 0], abs=1e-5)


def test_a_molecule_has_no_cell_and_no_stress():
    frames = AseTeacher(molecule="CH3CH2OH", calculator="emt", frames=2).generate(0).frames
    assert all("stress" not in frame.calc.results for frame in frames)
    assert frames[0].cell.rank == 0


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"molecule": "no such"}, ConfigError, "no such.*g2"),
        ({"molecule": "SiH4"}, ConfigError, "emt cannot label H4Si"),
        ({"structures": "nowhere.xyz"}, DataError, r"nowhere\.xyz"),
        ({"molecule": "H2O", "options": {"depth": 1}}, ConfigError, "depth"),
        ({"molecule": "H2O", "calculator": "xtb"}, BackendError, "needs the package 'xtb'"),
    ],
)
def test_what_cannot_be_labelled_is_named(settings, error, message, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "xtb", None)
    with pytest.raises(error, match=message):
        AseTeacher(**{"calculator": "emt", **settings}).generate(0)


def test_one_source_of_structures_and_calculators_of_a_list():
    for settings in ({}, {"molecule": "H2O", "structures": "a.xyz"}):
        with pytest.raises(ConfigError, match="either structures"):
            AseTeacher(**settings)
    with pytest.raises(ConfigError, match="calculator"):
        AseTeacher(molecule="H2O", calculator="os:system")


def test_a_label_that_is_not_finite_is_told(monkeypatch):
    from ase.calculators.emt import EMT

    def broken(self, *_):
        self.results = {"energy": np.nan, "forces": np.zeros((3, 3))}

    monkeypatch.setattr(EMT, "calculate", broken)
    with pytest.raises(NumericalError, match="emt, structure 0"):
        AseTeacher(molecule="H2O", calculator="emt").generate(0)


def test_a_campaign_of_frames_is_read_as_atoms(tmp_path):
    frames = made_frames(tmp_path, name="ase_teacher", molecule="H2O", calculator="emt", frames=3)
    assert len(frames) == 6
    assert np.isfinite(frames[0].forces).all()


def test_labels_and_constraints_of_the_file_are_not_those_of_the_distorted_structures(tmp_path):
    from ase.build import bulk
    from ase.calculators.emt import EMT
    from ase.constraints import FixAtoms

    atoms = bulk("Cu", cubic=True)
    atoms.info |= {"virial": np.eye(3), "free_energy": 9.0}
    atoms.arrays["forces"] = np.ones((4, 3))
    atoms.set_constraint(FixAtoms([0]))
    columns = ["symbols", "positions", "move_mask", "forces"]
    ase.io.write(tmp_path / "slab.xyz", atoms, format="extxyz", columns=columns)
    teacher = AseTeacher(structures=tmp_path / "slab.xyz", calculator="emt", frames=2)
    teacher.write(teacher.sample({}, 1), Origin({}, 1), tmp_path / "made.xyz")
    for frame in open_atoms([tmp_path / "made.xyz"]):
        fresh = ase.Atoms(frame.species, frame.positions, cell=frame.cell, pbc=True)
        fresh.calc = EMT()
        assert np.allclose(frame.forces, fresh.get_forces(), atol=1e-7)
        stress = fresh.get_stress(voigt=False)
        assert np.allclose(frame.virial, -fresh.get_volume() * stress, atol=1e-7)


def test_a_file_without_structures_is_refused(tmp_path):
    (tmp_path / "none.xyz").write_text("")
    with pytest.raises(DataError, match=r"none\.xyz"):
        AseTeacher(structures=tmp_path / "none.xyz", calculator="emt").generate(0)
