"""Descriptors side by side: symmetries, derivatives, smoothness, training, given parameters."""

from __future__ import annotations

import ase
import numpy as np
import pytest
import torch

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.io.atoms import open_atoms
from scitoolkit.io.atoms_formats import from_ase
from scitoolkit.potentials.calculator import Calculator
from scitoolkit.potentials.config import PotentialConfig
from scitoolkit.potentials.deep_potential import DeepPotentialConfig
from scitoolkit.potentials.graph import configuration_graph
from scitoolkit.potentials.job import PotentialJob, load_model, prepare

PAIR = {"name": "se_e2_a", "cutoff": 4.0, "cutoff_smooth": 1.0, "sel": [12, 24],
        "embedding": [4, 8], "axis_neurons": 3}  # fmt: skip
RADIAL = {**PAIR, "name": "se_e2_r", "cutoff": 3.0}
ATTENTION = {**PAIR, "name": "se_atten", "sel": 40, "cutoff": 3.5, "attention_width": 6,
             "attention_layers": 2, "type_width": 4}  # fmt: skip
MODELS = {
    "hybrid": [PAIR, RADIAL],
    "attention": [ATTENTION],
    "stripped": [{**ATTENTION, "type_input": "strip", "attention_layers": 0, "one_side": True}],
    "excluded": [{**PAIR, "exclude_types": [[0, 1]]}, {**RADIAL, "exclude_types": [[1, 1]]}],
    "all": [PAIR, RADIAL, ATTENTION],
}


def potential(name, **more):
    settings = {"descriptors": MODELS[name], "fitting": [8, 8], **more}
    model = DeepPotentialConfig.model_validate(settings).build(["O", "H"])
    for each in model.descriptors:
        each.deviation *= 0.2
        if hasattr(each, "mean") and name != "excluded":
            each.mean[:, 0] = torch.tensor([0.05, 0.08])
    return model.eval()


def water(seed=0, molecules=4, length=6.0):
    rng = np.random.default_rng(seed)
    shape = np.array([[0, 0, 0], [0.96, 0, 0], [-0.24, 0.93, 0]])
    sites = np.array(list(np.ndindex(2, 2, 2)))[:molecules] * length / 2
    turns = [np.linalg.qr(rng.normal(size=(3, 3)))[0] for _ in sites]
    positions = [
        s + shape @ t + 0.1 * rng.normal(size=3) for s, t in zip(sites, turns, strict=True)
    ]
    return ase.Atoms("OHH" * molecules, np.concatenate(positions), cell=[length] * 3, pbc=True)


def values(model, atoms, skin=0.0):
    atoms = atoms.copy()
    atoms.calc = Calculator(model, skin=skin)
    return atoms.get_potential_energy(), atoms.get_forces()


@pytest.mark.parametrize("name", MODELS)
def test_forces_and_stress_are_the_slopes_of_the_energy(name):
    model, atoms, step = potential(name), water(), 1e-4
    atoms.calc = Calculator(model, skin=0)
    forces, stress = atoms.get_forces(), atoms.get_stress()
    assert np.abs(forces).max() > 1e-3
    for atom, axis in ((0, 0), (5, 2)):
        energies = []
        for sign in (1, -1):
            moved = atoms.copy()
            moved.positions[atom, axis] += sign * step
            energies.append(values(model, moved)[0])
        slope = -(energies[0] - energies[1]) / (2 * step)
        assert slope == pytest.approx(forces[atom, axis], abs=1e-6)
    energies = []
    for sign in (1, -1):
        moved = atoms.copy()
        moved.set_cell(atoms.cell @ (np.eye(3) + sign * step * np.diag([1, 0, 0])), True)
        energies.append(values(model, moved)[0])
    slope = (energies[0] - energies[1]) / (2 * step) / atoms.get_volume()
    assert slope == pytest.approx(stress[0], abs=1e-7)


@pytest.mark.parametrize("name", MODELS)
def test_rotation_inversion_translation_permutation(name):
    model, atoms = potential(name), water()
    energy, forces = values(model, atoms)
    for seed in range(2):
        rng = np.random.default_rng(seed)
        rotation = np.linalg.qr(rng.normal(size=(3, 3)))[0] * (-1) ** seed
        order = rng.permutation(len(atoms))
        moved = atoms[order]
        moved.set_cell(atoms.cell @ rotation)
        moved.positions = (atoms.positions[order] + rng.normal(size=3)) @ rotation
        found = values(model, moved)
        assert found[0] == pytest.approx(energy, rel=1e-12)
        assert np.allclose(found[1], forces[order] @ rotation, atol=1e-12)


@pytest.mark.parametrize("name", MODELS)
def test_a_small_cell_is_the_same_as_its_copies_and_lone_atoms_feel_nothing(name):
    model, atoms = potential(name), water(molecules=1, length=3.1)
    energy, forces = values(model, atoms)
    many = values(model, atoms.repeat((2, 1, 1)))
    assert many[0] == pytest.approx(2 * energy, rel=1e-11)
    assert np.allclose(many[1], np.tile(forces, (2, 1)), atol=1e-10)
    one = values(model, ase.Atoms("O", positions=[[0, 0, 0]]))
    two = values(model, ase.Atoms("OO", positions=[[0, 0, 0], [9, 0, 0]]))
    assert two[0] == pytest.approx(2 * one[0])
    assert np.abs(two[1]).max() == 0


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("pair", ["OH", "HH"])
def test_an_atom_leaves_smoothly_through_every_cutoff(name, pair):
    model = potential(name)
    for cutoff in {each.cutoff for each in model.descriptors}:
        energies, forces = [], []
        for distance in cutoff + np.linspace(-2e-3, 2e-3, 9):
            atoms = ase.Atoms(pair + "O", positions=[[0, 0, 0], [distance, 0, 0], [0, 1.5, 0]])
            energy, force = values(model, atoms)
            energies.append(energy)
            forces.append(force[1, 0])
        rise = np.diff(energies)
        assert np.abs(np.diff(rise)).max() < 1e-6
        assert np.abs(np.diff(forces)).max() < 1e-3


def test_excluded_types_do_not_see_each_other():
    only = DeepPotentialConfig.model_validate(
        {"descriptors": [{**PAIR, "exclude_types": [[1, 0]]}], "fitting": [4]}
    ).build(["O", "H"])
    near, far = (
        values(only.eval(), ase.Atoms("OH", positions=[[0, 0, 0], [0, 0, d]])) for d in (1.0, 3.0)
    )
    assert near[0] == far[0]
    assert np.abs(near[1]).max() == 0
    with pytest.raises(ConfigError, match="places from 0 to 1"):
        DeepPotentialConfig.model_validate(
            {"descriptors": [{**PAIR, "exclude_types": [[0, 2]]}]}
        ).build(["O", "H"])


def test_more_types_in_the_map_than_in_the_frame_change_nothing_of_its_symmetry():
    """A frame with some of the model's species, whatever their order in the map."""
    settings = DeepPotentialConfig.model_validate(
        {"descriptors": [{**ATTENTION, "sel": 40}], "fitting": [8]}
    )
    one, two = settings.build(["O", "H", "Si"]).eval(), settings.build(["Si", "H", "O"]).eval()
    two.load_state_dict(one.state_dict())
    with torch.no_grad():
        turned = one.descriptors[0].type_embedding.flip(0)
        two.descriptors[0].type_embedding.copy_(turned)
    assert values(one, water())[0] == pytest.approx(values(two, water())[0], rel=1e-13)


@pytest.mark.parametrize("name", ["hybrid", "excluded"])
def test_training_gradients_of_the_kernels_are_those_of_the_reference(name):
    graph = configuration_graph(from_ase(water()), ["O", "H"], 4.0)
    gradients = []
    for kernels in (True, False):
        model = potential(name).train()
        for each in model.descriptors:
            each.use_kernels = kernels
        out = model(graph)
        (out["forces"].square().sum() + 0.1 * out["energy"].sum()).backward()
        gradients.append({n: p.grad for n, p in model.named_parameters()})
    for key, value in gradients[1].items():
        scale = value.abs().max().clamp_min(1e-12)
        assert float((gradients[0][key] - value).abs().max() / scale) < 1e-9, key


@pytest.mark.parametrize("name", ["attention", "stripped", "all"])
def test_gradients_of_a_force_loss_are_its_slopes(name):
    """Every kind of parameter, along one random direction each."""
    graph = configuration_graph(from_ase(water(molecules=2, length=5.0)), ["O", "H"], 4.0)
    model = potential(name).train()

    def loss():
        out = model(graph)
        return out["forces"].square().sum() + 0.01 * out["energy"].square().sum()

    loss().backward()
    generator = torch.Generator().manual_seed(0)
    for key, parameter in model.named_parameters():
        direction = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
        start, found = parameter.detach().clone(), []
        for sign in (1, -1):
            with torch.no_grad():
                parameter.copy_(start + sign * 1e-5 * direction)
            found.append(float(loss().detach()))
        with torch.no_grad():
            parameter.copy_(start)
        slope = (found[0] - found[1]) / 2e-5
        assert float((parameter.grad * direction).sum()) == pytest.approx(
            slope, rel=1e-5, abs=1e-7
        ), key


def test_float32_is_near_float64():
    energy, forces = values(potential("all"), water())
    found = values(potential("all", precision="float32"), water())
    assert found[0] == pytest.approx(energy, abs=1e-3)
    assert np.abs(found[1] - forces).max() < 1e-3 * np.abs(forces).max()


@pytest.fixture
def heated(tmp_path):
    rng, frames = np.random.default_rng(0), 16
    folder = tmp_path / "system"
    (folder / "set.000").mkdir(parents=True)
    coord = np.array([water(k, 2, 5.0).positions.ravel() for k in range(frames)])
    given, each = rng.normal(2.0, 0.5, (frames, 1)), rng.normal(size=(frames, 6))
    energy = -10.0 + given[:, 0] + 0.3 * each.sum(1)
    for name, values_ in {
        "coord": coord, "box": np.tile(np.eye(3).ravel() * 5.0, (frames, 1)), "energy": energy,
        "force": 0.01 * rng.normal(size=coord.shape), "fparam": given, "aparam": each,
    }.items():  # fmt: skip
        np.save(folder / "set.000" / f"{name}.npy", values_)
    (folder / "type.raw").write_text("0\n1\n1\n0\n1\n1\n")
    (folder / "type_map.raw").write_text("O\nH\n")
    return folder


def job(folder, **more):
    return PotentialConfig.model_validate(
        {
            "data": {"path": [folder], "validation": 0.25},
            "type_map": ["O", "H"],
            "model": {"name": "deep_potential", "descriptors": [{**PAIR, "sel": "auto"},
                      {**ATTENTION, "sel": "auto", "attention_layers": 1}], "fitting": [16],
                      **more},
            "loss": {"start_pref_e": 1, "limit_pref_e": 1, "start_pref_f": 0, "limit_pref_f": 0},
            "training": {"epochs": 30, "batch_size": 4, "progress": False,
                         "optimizer": {"name": "adam", "lr": 1e-2}},
        }
    )  # fmt: skip


def test_an_energy_that_depends_on_given_parameters_is_learned(heated, tmp_path):
    settings = job(heated, frame_parameters=1, atom_parameters=1)
    run = RunDirectory.create(tmp_path / "runs", "heated", settings)
    PotentialJob().train(settings, run)
    rows = [r["value"] for r in run.read_metrics() if r["name"] == "validation/energy_mse"]
    assert rows[-1] < 0.1 * rows[0]
    model, resolved, _ = load_model(run.path)
    assert isinstance(resolved.model.descriptors[1].sel, int)
    assert float(model.frame_parameters_mean) == pytest.approx(2.0, abs=0.4)
    atoms = water(0, 2, 5.0)
    atoms.info["fparam"], atoms.arrays["aparam"] = [1.5], np.zeros(6)
    atoms.calc = Calculator(model)
    energies = [atoms.get_potential_energy()]
    atoms.calc.reset()
    atoms.info["fparam"] = [2.5]
    energies.append(atoms.get_potential_energy())
    assert energies[1] - energies[0] == pytest.approx(1.0, abs=0.5)


def test_missing_parameters_are_named(heated):
    ready = prepare(job(heated, frame_parameters=1))
    frame = open_atoms(heated)[0]
    assert frame.atom_parameters.shape == (6, 1)
    graph = configuration_graph(from_ase(water()), ["O", "H"], 4.0)
    with pytest.raises(DataError, match="0 frame parameters, the model takes 1"):
        ready.model(graph)
    with pytest.raises(DataError, match=r"1 frame parameters, the model takes 2"):
        prepare(job(heated, frame_parameters=2))


def test_sel_is_counted_for_every_cutoff_and_too_small_ones_are_told(caplog):
    settings = DeepPotentialConfig.model_validate(
        {"descriptors": [{**PAIR, "sel": "auto"}, {**RADIAL, "sel": [1, 1], "cutoff": 2.0},
                         {**ATTENTION, "sel": "auto"}, {**ATTENTION, "sel": 2}]}
    )  # fmt: skip
    graph = configuration_graph(from_ase(water()), ["O", "H"], 4.0)
    pair, radial, attention, small = settings.counted([graph], ["O", "H"]).descriptors
    counts = graph["segments"].diff().view(-1, 2)
    assert all(s >= n for s, n in zip(pair.sel, counts.amax(0).tolist(), strict=True))
    near = counts.sum(1).max()
    assert attention.sel <= 1.1 * near + 4  # of a shorter cutoff
    assert (radial.sel, small.sel) == ([1, 1], 2)
    told = [r.getMessage() for r in caplog.records if r.levelname == "WARNING"]
    assert any("type H" in line for line in told)
    assert any("type any" in line for line in told)
