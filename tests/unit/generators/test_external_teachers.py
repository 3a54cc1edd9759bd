"""Teachers that are packages of their own; `make test-peers` has an environment with them."""

from __future__ import annotations

import numpy as np
import pytest
from frame_campaigns import made_frames

from scitoolkit.core.errors import ConfigError, NumericalError
from scitoolkit.generators.ase_teacher import AseTeacher

ase = pytest.importorskip("ase")
pytestmark = pytest.mark.slow

SMALL = {
    "tblite": {"method": "GFN2-xTB", "verbosity": 0},
    "pyscf": {"method": "PBE", "basis": "sto-3g", "grid": 4},
}


@pytest.fixture(params=SMALL)
def calculator(request):
    """The name of an external calculator; the test is skipped where its package is missing."""
    pytest.importorskip(request.param)
    return request.param


def _teacher(calculator: str, molecule: str = "H2O", **settings) -> AseTeacher:
    options = {**SMALL[calculator], **settings.pop("options", {})}
    return AseTeacher(calculator=calculator, molecule=molecule, options=options, **settings)


def test_forces_are_derivatives_of_the_energy(calculator):
    frame = _teacher(calculator, frames=1).sample({}, 3).frames[0]
    maker, h = _teacher(calculator)._calculator(), 1e-3
    for atom, axis in ((0, 2), (1, 1)):
        ends = []
        for side in (1, -1):
            moved = frame.copy()
            moved.calc = maker
            moved.positions[atom, axis] += side * h
            ends.append(moved.get_potential_energy())
        slope = (ends[1] - ends[0]) / (2 * h)
        assert frame.get_forces()[atom, axis] == pytest.approx(slope, abs=5e-3)


def test_a_campaign_is_read_as_atoms_and_is_the_same_again(calculator, tmp_path):
    about = {"molecule": "H2O", "calculator": calculator, "options": SMALL[calculator], "frames": 1}
    frames = made_frames(tmp_path, name="ase_teacher", **about)
    assert len(frames) == 2
    assert all(np.isfinite(frame.forces).all() for frame in frames)
    twice = [_teacher(calculator, frames=1).sample({}, 5).frames[0] for _ in range(2)]
    energies = [frame.get_potential_energy() for frame in twice]
    assert energies[0] == pytest.approx(energies[1], abs=1e-6)


def test_pyscf_labels_are_those_of_pyscf():
    pyscf = pytest.importorskip("pyscf")
    from ase.units import Bohr, Hartree

    frame = _teacher("pyscf", frames=1, options={"method": "HF"}).sample({}, 1).frames[0]
    places = [(s, p * 1 / Bohr) for s, p in zip(frame.symbols, frame.positions, strict=True)]
    field = pyscf.M(atom=places, basis="sto-3g", unit="Bohr", verbose=0).RHF().run(conv_tol=1e-11)
    assert frame.get_potential_energy() == pytest.approx(field.e_tot * Hartree, abs=1e-6)
    forces = -field.nuc_grad_method().kernel() * Hartree / Bohr
    assert np.allclose(frame.get_forces(), forces, atol=1e-4)


@pytest.mark.filterwarnings("ignore:Basis may be available")
def test_pyscf_replaces_core_electrons_where_the_basis_does():
    pyscf = pytest.importorskip("pyscf")
    from ase.units import Bohr, Hartree

    options = {"method": "HF", "basis": "def2-svp"}
    frame = _teacher("pyscf", "HCl", frames=1, options=options).sample({}, 1).frames[0].copy()
    frame.symbols = "ICl" if frame.symbols[0] == "Cl" else "ClI"
    frame.positions[1] += frame.positions[1] - frame.positions[0]
    frame.calc = _teacher("pyscf", options=options)._calculator()
    places = [[s, (p / Bohr).tolist()] for s, p in zip(frame.symbols, frame.positions, strict=True)]
    field = pyscf.M(atom=places, basis="def2-svp", ecp={"I": "def2-svp"}, unit="Bohr", verbose=0)
    exact = field.RHF().run(conv_tol=1e-11).e_tot * Hartree
    assert field.nelectron == 17 + 25
    assert frame.get_potential_energy() == pytest.approx(exact, abs=1e-6)
    with pytest.raises(ConfigError, match="pseudopotentials"):
        _teacher("pyscf", options={"basis": "gth-szv"}).sample({}, 0)


@pytest.mark.filterwarnings("ignore:Basis may be available in basis-set-exchange")
def test_pyscf_treats_open_shells_and_refuses_what_it_cannot_label(tmp_path):
    pytest.importorskip("pyscf")
    doublet = _teacher("pyscf", "CH3", frames=1, options={"method": "HF"}).sample({}, 1)
    assert doublet.invariants["force_sum"] < 1e-3
    for options, message in (
        ({"multiplicity": 2}, "multiplicity 2 with 10 electrons"),
        ({"basis": "no-such"}, "pyscf cannot label H2O"),
        ({"method": "no-such"}, "pyscf cannot label H2O"),
        ({"depth": 1}, "'depth' is not an option of pyscf"),
    ):
        with pytest.raises(ConfigError, match=message):
            _teacher("pyscf", options=options).sample({}, 0)
    from ase.build import bulk
    from ase.io import write

    write(tmp_path / "cell.xyz", bulk("Si"), format="extxyz")
    with pytest.raises(ConfigError, match="labels molecules"):
        AseTeacher(structures=tmp_path / "cell.xyz", calculator="pyscf").sample({}, 0)


def test_iterations_that_do_not_converge_are_told(monkeypatch):
    pytest.importorskip("pyscf")
    from pyscf import scf

    monkeypatch.setattr(scf.hf.SCF, "max_cycle", 1)
    with pytest.raises(NumericalError, match="HF/sto-3g does not converge"):
        _teacher("pyscf", options={"method": "HF"}).sample({}, 0)
