from __future__ import annotations

import numpy as np
import pytest
import torch

from scitoolkit.core.contracts import Progress
from scitoolkit.io.atoms import Configuration
from scitoolkit.ops.environment_matrix import EnvironmentSpec, reference
from scitoolkit.potentials.deepmd.statistics import environment_statistics, max_neighbours
from scitoolkit.potentials.graph import collate, configuration_graph, edge_vectors
from scitoolkit.potentials.loss import PotentialTask
from scitoolkit.potentials.loss_config import LossConfig
from scitoolkit.potentials.statistics import energy_shifts
from scitoolkit.training.optim.schedules import Constant, Cosine


def frame(seed=0, atoms=12, length=7.0):
    rng = np.random.default_rng(seed)
    species = np.where(rng.random(atoms) < 0.4, "O", "H")
    return Configuration(
        species,
        rng.uniform(0, length, (atoms, 3)),
        np.eye(3) * length,
        np.ones(3, bool),
        float(rng.normal()),
        rng.normal(size=(atoms, 3)),
    )


def test_edges_are_all_images_within_the_cutoff():
    """Against a sum over all images, in a cell so small that an atom meets itself."""
    one = frame(atoms=3, length=3.0)
    graph = configuration_graph(one, ["O", "H"], 4.0)
    found = np.sort(edge_vectors(graph).norm(dim=1).numpy())
    shifts = np.array([[i, j, k] for i in range(-3, 4) for j in range(-3, 4) for k in range(-3, 4)])
    all_ = one.positions[None, :, None] - one.positions[:, None, None] + 3.0 * shifts[None, None]
    distance = np.linalg.norm(all_, axis=-1).ravel()
    expected = np.sort(distance[(distance < 4.0) & (distance > 1e-9)])
    assert np.allclose(found, expected)


def test_segments_say_where_each_type_begins():
    graph = collate([configuration_graph(frame(s), ["O", "H"], 4.0) for s in (0, 1)])
    segments, types = graph["segments"], graph["types"]
    for atom in range(len(types)):
        for kind in (0, 1):
            part = slice(int(segments[2 * atom + kind]), int(segments[2 * atom + kind + 1]))
            assert (graph["edge_index"][0, part] == atom).all()
            assert (types[graph["edge_index"][1, part]] == kind).all()
    assert segments[-1] == graph["edge_index"].shape[1]


def test_statistics_count_absent_neighbours_as_zero():
    graphs = [configuration_graph(frame(s), ["O", "H"], 4.0) for s in range(3)]
    spec = EnvironmentSpec(4.0, 2.0, (20, 30), (4,))
    mean, deviation = environment_statistics(spec, graphs)
    rows = [torch.zeros(0, 4, dtype=torch.float64)]
    number = 0
    for graph in graphs:
        own = graph["types"][graph["edge_index"][0]]
        rows.append(reference.environment_rows(spec, edge_vectors(graph))[own == 1])
        number += int((graph["types"] == 1).sum()) * 50
    s = torch.cat([torch.cat(rows)[:, 0], torch.zeros(number - len(torch.cat(rows)))])
    assert mean[1, 0] == pytest.approx(float(s.mean()))
    assert deviation[1, 0] == pytest.approx(float(s.std(correction=0)))
    assert mean[1, 1:].abs().max() == 0


def test_shifts_of_one_composition_give_the_total():
    counts, energies = np.tile([64.0, 128.0], (5, 1)), np.full(5, -29942.0)
    assert counts[0] @ energy_shifts(counts, energies) == pytest.approx(-29942.0)
    mixed = np.array([[1.0, 0.0], [1.0, 2.0], [3.0, 1.0]])
    assert np.allclose(energy_shifts(mixed, mixed @ [-3.0, -0.5]), [-3.0, -0.5])


def test_max_neighbours_is_a_maximum_over_atoms():
    graph = configuration_graph(frame(), ["O", "H"], 4.0)
    most = max_neighbours([graph], 2)
    pairs = graph["segments"].diff().view(-1, 2)
    assert most == [int(pairs[:, 0].max()), int(pairs[:, 1].max())]


def test_prefactors_follow_the_learning_rate():
    loss = LossConfig(start_pref_e=0.02, limit_pref_e=1, start_pref_f=1000, limit_pref_f=1)
    assert loss.weights(1.0) == pytest.approx({"energy": 0.02, "forces": 1000.0, "virial": 0.0})
    assert loss.weights(0.0) == {"energy": 1.0, "forces": 1.0, "virial": 0.0}
    assert not loss.uses("virial")


class _Off(torch.nn.Module):
    """Energies and forces that are off by 2 eV and 0.5 eV/Å."""

    def forward(self, batch):
        return {"energy": batch["energy"] + 2.0, "forces": batch["forces"] + 0.5}


@pytest.mark.parametrize(
    ("limits", "weights"), [((0.0, 0.0), (3.0, 5.0)), ((0.5, 0.0), (0.5, 0.0))]
)
def test_validation_has_the_last_weights_or_the_first_where_these_are_zero(limits, weights):
    loss = LossConfig(
        start_pref_e=3, start_pref_f=5, limit_pref_e=limits[0], limit_pref_f=limits[1]
    )
    batch = {
        "num_atoms": torch.tensor([4]),
        "energy": torch.zeros(1),
        "forces": torch.zeros(4, 3),
        "frame": torch.zeros(4, dtype=torch.long),
    }
    found = PotentialTask(_Off(), loss).metrics(batch)
    # Squares a frame: (2 eV)²/4 atoms and (0.5 eV/Å)².
    assert found["loss"].item() == pytest.approx(weights[0] * 1.0 + weights[1] * 0.25)


@pytest.mark.parametrize(
    ("schedule", "weights"),
    [
        (Constant(), (3.0, 5.0)),
        (Cosine(), (2.0, 7.0)),
        (Cosine(final_factor=0.5), (2.5, 6.0)),
    ],
)
def test_validation_has_the_weights_of_the_last_step(schedule, weights):
    loss = LossConfig(start_pref_e=3, start_pref_f=5, limit_pref_e=2, limit_pref_f=7)
    batch = {
        "num_atoms": torch.tensor([4]),
        "energy": torch.zeros(1),
        "forces": torch.zeros(4, 3),
        "frame": torch.zeros(4, dtype=torch.long),
    }
    task = PotentialTask(_Off(), loss, schedule)
    for step in (0, 5, 10):
        task.at(Progress(step, 10, 0))
        told = task.metrics(batch)["loss"].item()
        assert told == pytest.approx(weights[0] * 1.0 + weights[1] * 0.25)
