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


ATOMS = "H 0 0 0 0.1 0 0\nH 0 0 0.74 -0.1 0 0\n"
COLUMNS = "Properties=species:S:1:pos:R:3:forces:R:3"
CELL = '"4 0 0 0 5 0 0 0 6"'


@pytest.mark.parametrize(
    ("comment", "message"),
    [
        (f'Lattice={CELL} {COLUMNS} energy=-1 PBC="F F F"', "PBC is not read. Fix: pbc="),
        (f"lattice={CELL} {COLUMNS} energy=-1", "lattice is not read. Fix: Lattice="),
        (f"cell={CELL} {COLUMNS} energy=-1", "cell is not read. Fix: Lattice="),
        (f"{COLUMNS.lower()} energy=-1", "properties is not read. Fix: Properties="),
        (f"{COLUMNS} energy=-1 name=a energy=-2", "energy is there 2 times"),
        (f'Lattice={CELL} Lattice="1 0 0 0 1 0 0 0 1" {COLUMNS}', "Lattice is there 2 times"),
    ],
)
def test_a_cell_under_another_name_and_two_energies_are_refused(tmp_path, comment, message):
    path = tmp_path / "a.xyz"
    path.write_text(f"2\n{comment}\n{ATOMS}", encoding="utf-8")
    with pytest.raises(DataError, match=f"a.xyz: frame 0: .*{message}"):
        open_atoms(path)[0]


@pytest.mark.parametrize(
    "comment",
    [
        f'{COLUMNS} energy=-1 note="cell=5 energy=3 energy=4" tag=a tag=b',
        f'cell_type=fcc {COLUMNS} energy = -1 pbc=[F, F, F] energy_error=2 "my note"=energy',
    ],
)
def test_other_entries_mean_nothing(tmp_path, comment):
    path = tmp_path / "a.xyz"
    path.write_text(f"2\n{comment}\n{ATOMS}", encoding="utf-8")
    frame = open_atoms(path)[0]
    assert (frame.energy, frame.pbc.any(), frame.forces[0, 0]) == (-1.0, False, 0.1)


@pytest.mark.parametrize("name", ["D", "H1", "Fe_up"])
def test_an_unknown_element_is_named(tmp_path, name):
    (tmp_path / "a.xyz").write_text(f"1\nenergy=-1\n{name} 0 0 0\n", encoding="utf-8")
    with pytest.raises(DataError, match=f"frame 0: element '{name}' is not known"):
        open_atoms(tmp_path / "a.xyz")[0]


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
        (f'REF_virials="{text_of(VIRIAL)}"', {"stress_key": "REF_virials"}, "names a virial"),
        (f'stress_GPa="{text_of(STRESS)}"', {"stress_key": "stress_GPa"}, "another unit"),
        (f'stress="{text_of(STRESS)}" REF_stress="{text_of(2 * STRESS)}"', {}, "REF_stress differ"),
        (f'virial="{text_of(np.tril(VIRIAL))}"', {}, "not symmetric"),
    ],
)
def test_other_names_and_contradictions_are_refused(tmp_path, extra, labels, message):
    with pytest.raises(DataError, match=message):
        virial_of(tmp_path, frame(extra), **labels)


SLAB = 'Lattice="4 0 0 0 5 0 0 0 6" pbc="T T F"'
BOX = 'Lattice="4 0 0 0 5 0 0 0 6" pbc="F F F"'


def test_a_slab_has_a_stress_and_a_molecule_in_a_box_has_none(tmp_path):
    stress = f'stress="{text_of(STRESS)}"'
    np.testing.assert_allclose(virial_of(tmp_path, frame(stress, SLAB)), VIRIAL, rtol=1e-8)
    assert virial_of(tmp_path, frame(f'stress="{text_of(0 * STRESS)}"', BOX)) is None
    with pytest.raises(DataError, match="without a periodic direction"):
        virial_of(tmp_path, frame(stress, BOX))
    for name in ("REF_stress", "REF_virials"):
        with pytest.raises(DataError, match=f"_key={name}"):
            virial_of(tmp_path, frame(f'{name}="{text_of(STRESS)}"', SLAB))


@pytest.mark.parametrize(
    ("key", "name", "message"),
    [
        ("energy_key", "energy_per_atom", "per atom"),
        ("forces_key", "dft_gradient", "opposite sign"),
    ],
)
def test_names_of_other_quantities_are_refused(tmp_path, key, name, message):
    text = frame("").replace("REF_forces" if key == "forces_key" else "REF_energy", name)
    (tmp_path / "a.xyz").write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        _ = open_atoms([tmp_path / "a.xyz"], LabelConfig(**{**NAMES, key: name}))[0]


def test_of_a_default_and_a_reference_label_the_user_chooses(tmp_path):
    path = tmp_path / "a.xyz"
    path.write_text(frame("energy=-2").replace("REF_forces", "forces"), encoding="utf-8")
    with pytest.raises(DataError, match="energy and REF_energy differ"):
        _ = open_atoms([path])[0]
    energies = [
        open_atoms([path], LabelConfig(energy_key=k))[0].energy for k in ("energy", "REF_energy")
    ]
    assert energies == [-2.0, -1.0]
    path.write_text(frame("energy=-1").replace("REF_forces", "forces"), encoding="utf-8")
    assert open_atoms([path])[0].energy == -1.0


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


def deepmd_input():
    return {
        "model": {
            "type_map": ["O", "H"],
            "descriptor": {"type": "se_e2_a", "sel": [12, 24], "rcut": 4.0},
            "fitting_net": {},
        },
        "learning_rate": {},
        "loss": {},
        "training": {"training_data": {"systems": ["a"], "batch_size": 1}, "numb_steps": 9},
    }


def test_energies_of_lone_atoms_of_deepmd_are_e0():
    document = deepmd_input()
    assert "e0" not in translate(document)
    document["model"]["fitting_net"]["atom_ener"] = [-10.0, -1]
    assert translate(document)["e0"] == {"O": -10.0, "H": -1.0}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("model", "fitting_net", "atom_ener"), [-10.0]),
        (("model", "fitting_net", "atom_ener"), [-10.0, None]),
        (("model", "fitting_net", "activation_function"), "relu"),
        (("model", "descriptor", "activation_function"), "relu"),
        (("model", "descriptor", "env_protection"), 0.1),
        (("model", "use_srtab"), "table.txt"),
        (("model", "spin"), {"use_spin": [True, False]}),
        (("loss", "use_huber"), True),
        (("loss", "start_pref_ae"), 1.0),
        (("loss", "enable_atom_ener_coeff"), True),
        (("learning_rate", "type"), "cosine"),
        (("learning_rate", "warmup_steps"), 10),
        (("training", "mixed_precision"), {"output_prec": "float32"}),
        (("training", "opt_type"), "LKF"),
        (("training", "training_data", "set_prefix"), "part"),
        (("model", "fitting_net", "trainable"), False),
        (("model", "descriptor", "trainable"), False),
        (("training", "training_data", "auto_prob"), "prob_sys_size;0:1:1.0;1:2:0.0"),
        (("training", "change_bias_after_training"), True),
        (("training", "not_a_key"), 1),
    ],
)
def test_keys_of_deepmd_that_change_the_result_are_refused(path, value):
    document = deepmd_input()
    translate(document)
    place = document
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    with pytest.raises((ConfigProblems, ScitoolkitError), match=path[-1]):
        translate(document)


@pytest.fixture(scope="module")
def small_library(tmp_path_factory):
    """Return a model of hydrogen and the folder of its library."""
    from scitoolkit.potentials import SeE2AConfig
    from scitoolkit.potentials.export.write import export_library

    settings = SeE2AConfig(sel=[8], embedding=[4, 8], axis_neurons=4, fitting=[8])
    model, folder = settings.build(["H"]), tmp_path_factory.mktemp("small") / "library"
    export_library(model, settings, folder)
    return model, folder


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_the_c_library_names_the_atom_whose_position_is_no_number(small_library, value):
    from scitoolkit.potentials.export.library import PotentialLibrary

    library = PotentialLibrary(small_library[1])
    positions = np.arange(12.0).reshape(4, 3)
    system = np.zeros(4, int), np.eye(3) * 30, np.zeros(3, bool)
    for compute in (library.compute, library.moving(0.5).compute):
        compute(positions, *system)
        damaged = positions.copy()
        damaged[2, 1] = value
        with pytest.raises(NumericalError, match="atom 2"):
            compute(damaged, *system)


@pytest.mark.parametrize("gap", [0.0, 1e-4])
@pytest.mark.parametrize("cell", [None, [9.0, 9, 9], [9.0, 9, 0]])
def test_atoms_in_one_place_are_refused_everywhere(small_library, gap, cell):
    import ase

    from scitoolkit.potentials import Calculator
    from scitoolkit.potentials.export.calculator import LibraryCalculator

    model, folder = small_library
    calculators = [
        *(Calculator(model, skin=skin) for skin in (0, 0.5)),
        *(LibraryCalculator(folder, skin=skin) for skin in (0, 0.5)),
    ]
    for calculator in calculators:
        atoms = ase.Atoms("H3", [[0, 0, 0], [0, 0, 0.2], [1, 0, 0]], cell=cell)
        atoms.pbc = atoms.cell.lengths() > 0
        atoms.calc = calculator
        atoms.get_potential_energy()
        atoms.positions[1, 2] = gap
        with pytest.raises(DataError, match="apart"):
            atoms.get_potential_energy()


def test_the_calculator_of_a_library_refuses_what_python_refuses(small_library):
    import ase

    from scitoolkit.potentials import Calculator
    from scitoolkit.potentials.export.calculator import LibraryCalculator

    model, folder = small_library
    for calculator in (Calculator(model), LibraryCalculator(folder)):
        for atoms in (ase.Atoms(), ase.Atoms("H2", [[0, 0, 0], [1, 0, 0]], pbc=True)):
            atoms.calc = calculator
            with pytest.raises(DataError, match=r"without atoms|no such lattice vectors"):
                atoms.get_potential_energy()


def test_predictions_that_are_not_finite_are_no_results(tmp_path, small_library):
    import copy

    import torch

    from scitoolkit.potentials import Calculator
    from scitoolkit.potentials.evaluation import collect
    from scitoolkit.potentials.graph import configuration_graph
    from scitoolkit.potentials.prediction import write_predictions

    model = copy.deepcopy(small_library[0])
    with torch.no_grad():
        model.shift.fill_(float("nan"))
    (tmp_path / "a.xyz").write_text(MOLECULE, encoding="utf-8")
    frames = open_atoms([tmp_path / "a.xyz"], LabelConfig(**NAMES))
    graphs = [configuration_graph(frames[0], model.type_map, model.cutoff)]
    calls = (
        lambda: collect(model, graphs),
        lambda: write_predictions(model, frames, tmp_path / "a.nc"),
        lambda: Calculator(model).get_potential_energy(molecule_of(frames[0])),
    )
    for call in calls:
        with pytest.raises(NumericalError, match="not finite"):
            call()
    assert not (tmp_path / "a.nc").exists()


def molecule_of(frame):
    from scitoolkit.potentials.prediction import to_ase

    return to_ase(frame)


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


def test_constraints_of_ase_do_not_change_the_results_of_the_calculators(small_library):
    import ase
    from ase.constraints import FixAtoms

    from scitoolkit.potentials import Calculator
    from scitoolkit.potentials.export.calculator import LibraryCalculator

    model, folder = small_library
    atoms = ase.Atoms("H3", [[0, 0, 0], [0, 0, 1], [0, 0.9, 0]], cell=[6, 6, 6], pbc=True)
    for calculator in (Calculator(model), LibraryCalculator(folder)):
        free, fixed = atoms.copy(), atoms.copy()
        fixed.set_constraint(FixAtoms([0, 1]))
        free.calc = fixed.calc = calculator
        forces, stress = free.get_forces(), free.get_stress()
        np.testing.assert_array_equal(fixed.get_forces(apply_constraint=False), forces)
        np.testing.assert_array_equal(fixed.get_stress(), stress)
        np.testing.assert_array_equal(fixed.get_forces(), [[0] * 3, [0] * 3, forces[2]])
        np.testing.assert_array_equal(calculator.results["forces"], forces)


CRYSTAL = frame(f'REF_stress="{text_of(STRESS)}"')
MOLECULE = """2
Properties=species:S:1:pos:R:3:REF_forces:R:3 REF_energy=-1.25 pbc="F F F"
H 0 0 0 0.1 0 0
H 0 0 0.80 -0.1 0 0
"""
ENERGY_ONLY = """2
Lattice="4 0 0 0 5 0 0 0 6" Properties=species:S:1:pos:R:3 REF_energy=-1 pbc="T T T"
H 0 0 0
H 0 0 0.78
"""
FORCES_ONLY = """2
Properties=species:S:1:pos:R:3:REF_forces:R:3 pbc="F F F"
H 0 0 0 0.2 0 0
H 0 0 0.76 -0.2 0 0
"""
LONE = '1\nProperties=species:S:1:pos:R:3 REF_energy=-0.4 pbc="F F F"\nH 0 0 0\n'
ALL_NAMES = {**NAMES, "stress_key": "REF_stress"}
MIXTURES = [
    [CRYSTAL, MOLECULE],
    [MOLECULE, CRYSTAL, ENERGY_ONLY],
    [FORCES_ONLY, CRYSTAL, ENERGY_ONLY, MOLECULE],
    [ENERGY_ONLY, LONE, CRYSTAL, FORCES_ONLY],
]


@pytest.mark.parametrize("frames", MIXTURES)
def test_a_frame_without_a_label_has_weight_zero(tmp_path, frames):
    """The loss of a batch is the mean of the losses of its frames, whatever labels they have."""
    from scitoolkit.potentials import SeE2AConfig
    from scitoolkit.potentials.graph import collate, configuration_graph
    from scitoolkit.potentials.loss import PotentialTask
    from scitoolkit.potentials.loss_config import LossConfig

    (tmp_path / "a.xyz").write_text("".join(frames), encoding="utf-8")
    source = open_atoms([tmp_path / "a.xyz"], LabelConfig(**ALL_NAMES))
    source.check(virial=True)
    model = SeE2AConfig(sel=[8], embedding=[4, 8], axis_neurons=4, fitting=[8]).build(["H"])
    task = PotentialTask(model.train(), LossConfig(start_pref_v=1.0, limit_pref_v=1.0))
    graphs = [configuration_graph(frame, ["H"], 3.0) for frame in source]
    alone = [task.loss(graph)[0].item() for graph in graphs]
    together, parts = task.loss(collate(graphs))
    assert together.item() == pytest.approx(np.mean(alone), rel=1e-6)
    assert set(parts) == {"energy_loss", "forces_loss", "virial_loss"}
    together.backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in model.parameters())


@pytest.mark.parametrize("frames", MIXTURES)
def test_a_training_on_mixed_labels(tmp_path, frames):
    from scitoolkit.core.run_directory import RunDirectory
    from scitoolkit.potentials.config import PotentialConfig
    from scitoolkit.potentials.job import PotentialJob

    (tmp_path / "a.xyz").write_text("".join(frames * 4), encoding="utf-8")
    config = PotentialConfig.model_validate(
        {
            "data": {"path": [tmp_path / "a.xyz"], "labels": ALL_NAMES},
            "model": {
                "name": "se_e2_a",
                "cutoff": 3.0,
                "sel": [8],
                "embedding": [4, 8],
                "axis_neurons": 4,
                "fitting": [8],
            },
            "loss": {"start_pref_v": 1, "limit_pref_v": 1},
            "training": {"steps": 4, "batch_size": 3, "progress": False},
        }
    )
    PotentialJob().check(config)
    run = RunDirectory.create(tmp_path, "run", config)
    PotentialJob().train(config, run)
    metrics = PotentialJob().evaluate(run.path).metrics
    assert all(np.isfinite(v) for v in metrics.values() if isinstance(v, float))


@pytest.mark.parametrize(
    ("frames", "required", "message"),
    [
        ([MOLECULE] * 3, {"virial": True}, "REF_stress|virial"),
        ([ENERGY_ONLY] * 3, {}, "REF_forces"),
        ([FORCES_ONLY] * 3, {}, "REF_energy"),
    ],
)
def test_a_label_that_no_frame_has_is_refused(tmp_path, frames, required, message):
    (tmp_path / "a.xyz").write_text("".join(frames), encoding="utf-8")
    with pytest.raises(DataError, match=message):
        open_atoms([tmp_path / "a.xyz"], LabelConfig(**ALL_NAMES)).check(**required)


def test_a_label_under_another_name_is_refused_beside_the_named_one(tmp_path):
    other = MOLECULE.replace("REF_forces", "dft_forces")
    (tmp_path / "a.xyz").write_text(MOLECULE + other, encoding="utf-8")
    source = open_atoms([tmp_path / "a.xyz"], LabelConfig(**NAMES))
    with pytest.raises(DataError, match=r"forces_key=dft_forces.*|frame 1"):
        source[1]


def test_a_lone_atom_needs_no_column_of_forces(tmp_path):
    (tmp_path / "a.xyz").write_text(LONE, encoding="utf-8")
    frame = open_atoms([tmp_path / "a.xyz"], LabelConfig(**NAMES))[0]
    assert frame.forces is None
    assert frame.energy == -0.4


def test_energies_that_contradict_each_other_are_refused():
    import ase
    from ase.calculators.singlepoint import SinglePointCalculator

    from scitoolkit.io.atoms_formats import from_ase

    atoms = ase.Atoms("H", info={"energy": -1.0})
    atoms.calc = SinglePointCalculator(atoms, energy=-2.0)
    with pytest.raises(DataError, match="differ"):
        from_ase(atoms, LabelConfig())


def test_the_number_of_an_atom_without_a_position_is_named(tmp_path):
    import ase

    from scitoolkit.io.atoms import checked
    from scitoolkit.io.atoms_formats import from_ase

    atoms = ase.Atoms("H4", positions=np.arange(12.0).reshape(4, 3))
    atoms.positions[2, 1] = np.nan
    with pytest.raises(DataError, match="atom 2"):
        checked(from_ase(atoms))


def test_a_deepmd_system_without_names_has_places_in_the_type_map():
    from scitoolkit.potentials.graph import type_indices

    frame = lone(np.zeros((3, 3)), [False] * 3, ["Type_1", "Type_0"])
    assert type_indices(frame, ["O", "H"]).tolist() == [1, 0]
    with pytest.raises(DataError, match="Type_2"):
        type_indices(lone(np.zeros((3, 3)), [False] * 3, ["Type_2"]), ["O", "H"])


def test_the_verdict_is_on_energies_if_the_elements_means_are_better():
    from scitoolkit.potentials.evaluation import _verdict

    forces = {"force_rmse": 10.0, "force_rmse_of_zero_force": 50.0}
    bad = {"energy_per_atom_rmse": 4818.0, "energy_per_atom_rmse_of_zero_force": 130.0}
    assert _verdict({**forces, **bad}).quantity == "energy RMSE"
    assert "the baseline is better" in _verdict({**forces, **bad}).sentence
    assert _verdict({**forces, **bad, "energy_per_atom_rmse": 3.0}).quantity == "force RMSE"


@pytest.mark.parametrize("symbol", ["Ne", "Ar", "Xe"])
def test_noble_gases_are_read_in_angstrom_and_not_in_bohr(tmp_path, symbol):
    import ase
    from ase.build import bulk
    from ase.io import write

    edges = {"Ne": 4.46, "Ar": 5.31, "Xe": 6.13}
    frames = [bulk(symbol, "fcc", a=edges[symbol], cubic=True) for _ in range(3)]
    frames.append(ase.Atoms(f"{symbol}2", [[0, 0, 0], [0, 0, edges[symbol] / 2**0.5]]))
    for scale, message in ((1.0, None), (1 / 0.529177, "bohr"), (0.1, "nm")):
        for frame in frames:
            frame.info["energy"] = -1.0
            frame.arrays["forces"] = np.ones((len(frame), 3))
        scaled = [frame.copy() for frame in frames]
        for frame in scaled:
            frame.set_cell(frame.cell * scale, scale_atoms=True)
            if not frame.cell:
                frame.positions *= scale
        write(tmp_path / "a.xyz", scaled)
        source = open_atoms([tmp_path / "a.xyz"])
        if message is None:
            source.check()
            continue
        with pytest.raises(DataError, match=f"as if positions were in {message}"):
            source.check()


@pytest.mark.parametrize("scale", [1.0, 1 / 0.529177])
def test_primitive_cells_tell_the_unit_of_length(tmp_path, scale):
    from ase.build import bulk
    from ase.io import write

    frames = [bulk("Cu", "fcc", a=a * scale) for a in (3.5, 3.61, 3.7)]
    for frame in frames:
        frame.info["energy"] = -1.0
    write(tmp_path / "a.xyz", frames)
    source = open_atoms([tmp_path / "a.xyz"])
    if scale == 1.0:
        source.check(forces=False)
        return
    with pytest.raises(DataError, match="bohr"):
        source.check(forces=False)
