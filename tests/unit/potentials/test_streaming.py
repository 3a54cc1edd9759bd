"""Inference over blocks of receivers: equal to the evaluation that stores all radial weights."""

import copy

import ase
import numpy as np
import pytest
import torch

from scitoolkit.core.errors import BackendError, CheckpointError
from scitoolkit.io.atoms_formats import from_ase
from scitoolkit.potentials import Calculator, MaceConfig
from scitoolkit.potentials.equivariant import mace
from scitoolkit.potentials.equivariant.mace_library import mace_library
from scitoolkit.potentials.export import streaming
from scitoolkit.potentials.export.folder import load_native
from scitoolkit.potentials.export.library import PotentialLibrary
from scitoolkit.potentials.graph import collate, configuration_graph

SETTINGS = {
    "cutoff": 4.0,
    "channels": 4,
    "lmax": 2,
    "correlation": 2,
    "radial_widths": [8],
    "precision": "float64",
    "zbl": {"inner": 0.8, "outer": 2.0},
}


def system(counts=(4, 4, 5), seed=0):
    rng, step = np.random.default_rng(seed), 1.9
    grid = np.stack(np.meshgrid(*map(np.arange, counts), indexing="ij"), -1).reshape(-1, 3)
    x = (grid + 0.5 + rng.uniform(-0.2, 0.2, grid.shape)) * step
    return ase.Atoms(rng.choice(["O", "H"], len(x)), x, cell=np.array(counts) * step, pbc=True)


@pytest.fixture
def model():
    made = MaceConfig(**SETTINGS).build(["O", "H"]).eval()
    made.average_neighbours.fill_(20.0)
    return made


def graph(atoms, model):
    return configuration_graph(from_ase(atoms), model.type_map, model.cutoff)


def equal(found, wanted):
    for name, value in wanted.items():
        assert (found[name] - value).abs().max() <= 1e-11 * value.abs().max()


def stored(model, given, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(mace, "STREAMED_ATOMS", 10**9)
        return model(given)


def test_equals_stored_weights_in_batches_of_frames(model, monkeypatch):
    batch = collate([graph(system(seed=seed), model) for seed in (0, 1)])
    assert model.streams(80)
    assert not model.streams(mace.STREAMED_ATOMS - 1)
    equal(model(batch), stored(model, batch, monkeypatch))


def test_follows_weights_that_change(model, monkeypatch):
    given = graph(system(), model)
    before = model(given)["energy"]
    with torch.no_grad():
        model.embedding.mul_(1.1)
    after = model(given)
    assert (after["energy"] - before).abs() > 1e-3
    equal(after, stored(model, given, monkeypatch))
    equal(copy.deepcopy(model)(given), after)


def test_calculator_hands_over_its_kept_list(model, monkeypatch):
    atoms = system()
    atoms.calc = Calculator(model, skin=1.0)
    atoms.get_forces()
    atoms.positions += np.random.default_rng(3).uniform(-0.1, 0.1, atoms.positions.shape)
    found = (atoms.get_forces(), atoms.get_stress())
    assert atoms.calc.neighbours.lists_made == 1
    monkeypatch.setattr(mace, "STREAMED_ATOMS", 10**9)
    atoms.calc = Calculator(model, skin=0.0)
    for ours, wanted in zip(found, (atoms.get_forces(), atoms.get_stress()), strict=True):
        assert np.abs(ours - wanted).max() <= 1e-11 * np.abs(wanted).max()


def test_training_is_not_streamed(model):
    assert not model.train().streams(1000)


def test_a_learned_density_is_streamed(monkeypatch):
    model = MaceConfig(**SETTINGS, density=True, first_density=True).build(["O", "H"]).eval()
    batch = graph(system(), model)
    assert model.streams(80)
    equal(model(batch), stored(model, batch, monkeypatch))


def test_without_compiler_the_whole_graph_is_evaluated(model, monkeypatch, caplog):
    given = graph(system(), model)
    wanted = stored(model, given, monkeypatch)

    def refuse(source):
        raise BackendError("no C compiler found")

    monkeypatch.setattr(streaming, "load_native", refuse)
    equal(model(given), wanted)
    assert "without the C library" in caplog.text


def test_damaged_weights_in_memory_are_refused(model):
    library, weights = load_native(mace_library(model))
    with pytest.raises(CheckpointError, match="truncated"):
        PotentialLibrary((library, weights[:-8]))
