"""Training that starts from weights: E0, frozen layers, replay, new elements, refusals."""

import ase
import numpy as np
import pytest
import torch
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import write

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.io.atoms_formats import from_ase
from scitoolkit.potentials import Calculator, MaceConfig, PotentialConfig, load_model, write_deepmd
from scitoolkit.potentials.graph import configuration_graph
from scitoolkit.potentials.job import PotentialJob
from scitoolkit.potentials.preparation import prepare
from scitoolkit.potentials.saved import save_model

MACE = {
    "name": "mace",
    "cutoff": 3.0,
    "channels": 4,
    "lmax": 2,
    "correlation": 2,
    "radial_widths": [8],
    "precision": "float64",
    "distance_transform": "agnesi",
}
DEEP = {
    "name": "se_e2_a",
    "sel": [6, 6],
    "cutoff": 3.0,
    "cutoff_smooth": 1.0,
    "embedding": [4],
    "axis_neurons": 2,
    "fitting": [6],
    "precision": "float64",
}


def molecules(symbols, number=8, seed=0):
    rng = np.random.default_rng(seed)
    base = np.array([[0, 0, 0], [0.95, 0, 0], [-0.3, 0.9, 0], [0.2, -0.5, 0.9]])
    return [ase.Atoms(symbols, base + rng.uniform(-0.1, 0.1, base.shape)) for _ in range(number)]


def labelled(path, atoms, calculator, shifts):
    """Write frames with the forces of a calculator and its energies, shifted by element."""
    for each in atoms:
        each.calc = calculator
        energy = each.get_potential_energy() + sum(shifts[s] for s in each.get_chemical_symbols())
        each.calc = SinglePointCalculator(each, energy=energy, forces=each.get_forces())
    write(path, atoms, format="extxyz")
    return str(path)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """A run directory of a MACE of H and O, frames of it on its E0 and on another."""
    folder = tmp_path_factory.mktemp("source")
    model = MaceConfig(**MACE).build(["H", "O"]).eval()
    with torch.no_grad():
        model.shift.copy_(torch.tensor([-1.0, -3.0]))
        model.average_neighbours.fill_(3.0)
    config = PotentialConfig(
        workflow="w", data={"path": ["a.xyz"]}, model=model.config, type_map=["H", "O"]
    )
    save_model(model, config, folder / "model")
    calculator = Calculator(model, skin=0)
    mixed = [*molecules("OHHH"), *molecules("OHOH", seed=1)]
    former = labelled(folder / "former.xyz", mixed, calculator, {"H": 0.0, "O": 0.0})
    new = labelled(
        folder / "new.xyz",
        [*molecules("OHHO", seed=2), *molecules("OHHH", seed=3)],
        calculator,
        {"H": 5.0, "O": -2.0},
    )
    return model, folder, former, new


def config(data, **start):
    return PotentialConfig.model_validate(
        {
            "data": {"path": [data]},
            "model": {"name": "mace"},
            "start": start,
            "training": {
                "steps": 3,
                "batch_size": 2,
                "progress": False,
                "optimizer": {"name": "adam", "lr": 1e-4},
            },
        }
    )


def test_energies_of_another_reference_are_explained_by_e0_alone(source):
    model, folder, _, new = source
    ready = prepare(config(new, path=str(folder)))
    assert torch.allclose(ready.model.shift, torch.tensor([4.0, -5.0]).double(), atol=1e-6)
    for name, value in ready.model.named_parameters():
        assert torch.equal(value, model.state_dict()[name])
    assert ready.config.model.cutoff == 3.0
    ready.model.eval()
    graph = ready.train[0]
    assert (ready.model(graph)["energy"] - graph["energy"]).abs() < 1e-5


def test_frozen_parameters_do_not_change_and_others_do(source, tmp_path):
    model, folder, _, new = source
    settings = config(new, path=str(folder), frozen=["embedding", "layers.0.*"])
    run = RunDirectory.create(tmp_path, "tuned", settings)
    PotentialJob().train(settings, run)
    tuned = load_model(run.path)[0].state_dict()
    before = model.state_dict()
    frozen = [n for n in dict(model.named_parameters()) if n.startswith(("embedding", "layers.0"))]
    assert all(torch.equal(tuned[name], before[name]) for name in frozen)
    assert not torch.equal(tuned["layers.1.readout.weight.0"], before["layers.1.readout.weight.0"])


def test_replayed_frames_have_energies_on_the_new_e0(source):
    _, folder, former, new = source
    settings = config(new, path=str(folder), replay=[former], replay_frames=5)
    ready = prepare(settings)
    alone = prepare(config(new, path=str(folder)))
    assert len(ready.train) == len(alone.train) + 5
    ready.model.eval()
    for number in range(len(ready.train)):
        graph = ready.train[number]
        assert (ready.model(graph)["energy"] - graph["energy"]).abs() < 1e-5


def test_new_elements_are_refused_or_added_without_changing_the_old(source, tmp_path):
    model, folder, _, _ = source
    atoms = molecules("CHHO")
    calculator = Calculator(MaceConfig(**MACE).build(["H", "O", "C"]), skin=0)
    data = labelled(tmp_path / "c.xyz", atoms, calculator, dict.fromkeys("CHO", 1.0))
    with pytest.raises(DataError, match=r"do not know C.*new_elements=add"):
        prepare(config(data, path=str(folder)))
    ready = prepare(config(data, path=str(folder), new_elements="add"))
    assert ready.model.type_map == ("H", "O", "C")
    old = from_ase(molecules("OHHH", seed=4)[0])
    forces = [
        each.eval()(configuration_graph(old, each.type_map, each.cutoff))["forces"]
        for each in (model, ready.model)
    ]
    assert (forces[0] - forces[1]).abs().max() <= 1e-12 * forces[0].abs().max()


def test_deepmd_weights_start_a_training_and_are_not_extended(source, tmp_path):
    _, _, _, new = source
    deep = PotentialConfig.model_validate(
        {"data": {"path": [new]}, "model": DEEP, "type_map": ["H", "O"]}
    )
    ready = prepare(deep)
    path = str(write_deepmd(ready.model, tmp_path / "model.dp"))
    again = prepare(
        PotentialConfig.model_validate(
            {"data": {"path": [new]}, "model": {"name": "se_e2_a"}, "start": {"path": path}}
        )
    )
    for name, value in ready.model.named_parameters():
        assert torch.equal(value, dict(again.model.named_parameters())[name])
    with pytest.raises(ConfigError, match="elements cannot be added to a DeepPotential"):
        again.model.extend(ready.model)


@pytest.mark.parametrize(
    ("model", "start", "message"),
    [
        ({"name": "mace", "channels": 8}, {}, r"model.channels is 8, .* have 4"),
        ({"name": "nequip"}, {}, r"model.name is 'nequip'"),
        ({"name": "mace"}, {"frozen": ["layer.0.*"]}, r"no parameter is called 'layer.0.\*'"),
        ({"name": "mace"}, {"frozen": ["*"]}, "none is left to train"),
        (
            {"name": "mace"},
            {"replay": "former", "replay_frames": 50},
            "16 frames, 50 are configured",
        ),
    ],
)
def test_bad_settings_are_refused(model, start, message, source):
    _, folder, former, new = source
    given = {**start, "path": str(folder)}
    if "replay" in given:
        given["replay"] = [former]
    settings = PotentialConfig.model_validate(
        {"data": {"path": [new]}, "model": model, "start": given}
    )
    with pytest.raises((ConfigError, DataError), match=message):
        prepare(settings)
