"""Labels under any name are read, or refused by name; an isolated atom has no neighbour."""

import numpy as np
import pytest

from scitoolkit.core.config import ConfigProblems
from scitoolkit.core.errors import DataError, NumericalError, ScitoolkitError
from scitoolkit.io.atoms import Configuration, LabelConfig, open_atoms
from scitoolkit.potentials.deepmd.input import translate
from scitoolkit.potentials.reference_energies import is_isolated

STRESS = np.array([[0.01, 0.004, 0.002], [0.004, 0.02, 0.003], [0.002, 0.003, 0.03]])
VIRIAL = -120 * STRESS
NAMES = {"energy_key": "REF_energy", "forces_key": "REF_forces"}


def text_of(values) -> str:
    return " ".join(f"{value:.10g}" for value in np.ravel(values))


def frame(extra: str, lattice: str = 'Lattice="4 0 0 0 5 0 0 0 6" pbc="T T T"') -> str:
    return (
        f"2\n{lattice} Properties=species:S:1:pos:R:3:REF_forces:R:3 REF_energy=-1 {extra}\n"
        "H 0 0 0 0.1 0 0\nH 0 0 0.74 -0.1 0 0\n"
    )


def virial_of(tmp_path, text, **labels):
    (tmp_path / "a.xyz").write_text(text, encoding="utf-8")
    return open_atoms([tmp_path / "a.xyz"], LabelConfig(**NAMES, **labels))[0].virial


@pytest.mark.parametrize(
    ("extra", "labels"),
    [
        (f'REF_stress="{text_of(STRESS)}"', {"stress_key": "REF_stress"}),
        (
            f'dft_stress="{text_of([0.01, 0.02, 0.03, 0.003, 0.002, 0.004])}"',
            {"stress_key": "dft_stress"},
        ),
        (f'REF_virials="{text_of(VIRIAL)}"', {"virial_key": "REF_virials"}),
        (f'virial="{text_of(VIRIAL)}"', {}),
        (f'stress="{text_of(STRESS)}"', {}),
        (f'virial="{text_of(VIRIAL)}" stress="{text_of(STRESS)}"', {}),
    ],
)
def test_stress_and_virial_under_any_name(tmp_path, extra, labels):
    np.testing.assert_allclose(virial_of(tmp_path, frame(extra), **labels), VIRIAL, rtol=1e-8)


@pytest.mark.parametrize(
    ("extra", "labels", "message"),
    [
        (f'REF_stress="{text_of(STRESS)}"', {}, "stress_key=REF_stress"),
        (f'REF_virials="{text_of(VIRIAL)}"', {}, "virial_key=REF_virials"),
        (f'REF_stress="{text_of(STRESS)}"', {"virial_key": "REF_stress"}, "names a stress"),
        ("", {"virial_key": "REF_virials"}, "no virial called"),
        ("", {"stress_key": "REF_stress"}, "no stress called"),
        (f'virial="{text_of(-VIRIAL)}" stress="{text_of(STRESS)}"', {}, "differ"),
        (f'virial="{text_of(VIRIAL * np.nan)}" stress="{text_of(STRESS)}"', {}, "differ|NaN"),
    ],
)
def test_other_names_and_contradictions_are_refused(tmp_path, extra, labels, message):
    with pytest.raises(DataError, match=message):
        virial_of(tmp_path, frame(extra), **labels)


@pytest.mark.parametrize("lattice", ['pbc="F F F"', 'Lattice="4 0 0 0 5 0 0 0 0" pbc="T T F"'])
def test_a_molecule_has_no_stress(tmp_path, lattice):
    zeros = text_of(np.zeros(9))
    assert virial_of(tmp_path, frame(f'stress="{zeros}"', lattice)) is None


def lone(cell, pbc, species=("Cu",)):
    return Configuration(
        np.array(species), np.zeros((len(species), 3)), np.array(cell, float), np.array(pbc)
    )


@pytest.mark.parametrize(
    ("cell", "pbc", "expected"),
    [
        (np.zeros((3, 3)), [False] * 3, True),
        (np.eye(3) * 3.6, [False] * 3, True),
        (np.eye(3) * 3.6, [True] * 3, False),
        (np.eye(3) * 20, [True] * 3, True),
        (np.diag([20, 20, 3.6]), [False, False, True], False),
        (np.diag([20, 20, 3.6]), [True, True, False], True),
        # A skewed cell whose vectors are long, and whose images are near.
        ([[20, 0, 0], [19, 3, 0], [0, 0, 20]], [True] * 3, False),
        ([[20, 0, 0], [0, 0, 0], [0, 0, 20]], [True] * 3, False),
    ],
)
def test_an_isolated_atom_has_no_neighbour_within_the_cutoff(cell, pbc, expected):
    assert is_isolated(lone(cell, pbc), 6.0) is expected


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("model", "fitting_net", "atom_ener"), [-10.0, -1.0]),
        (("model", "fitting_net", "trainable"), False),
        (("model", "descriptor", "trainable"), False),
        (("training", "training_data", "auto_prob"), "prob_sys_size;0:1:1.0;1:2:0.0"),
        (("training", "change_bias_after_training"), True),
        (("training", "not_a_key"), 1),
    ],
)
def test_keys_of_deepmd_that_change_the_result_are_refused(path, value):
    document = {
        "model": {
            "type_map": ["O", "H"],
            "descriptor": {"type": "se_e2_a", "sel": [12, 24], "rcut": 4.0},
            "fitting_net": {},
        },
        "learning_rate": {},
        "loss": {},
        "training": {"training_data": {"systems": ["a"], "batch_size": 1}, "numb_steps": 9},
    }
    translate(document)
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises((ConfigProblems, ScitoolkitError), match=path[-1]):
        translate(document)


@pytest.mark.parametrize("skin", [0.0, 0.5, 2.0])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_positions_that_are_no_numbers_are_refused_at_every_call(skin, value):
    from ase.build import molecule

    from scitoolkit.potentials import Calculator

    atoms = molecule("H2O")
    atoms.calc = Calculator("acac_mace", skin=skin)
    atoms.get_potential_energy()
    atoms.positions[1, 2] = value
    with pytest.raises((DataError, NumericalError)):
        atoms.get_potential_energy()
