"""Weights of frames by type, by file and by frame in the loss; errors by type in the report."""

from __future__ import annotations

import ase.io
import numpy as np
import pytest
import torch
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.io.atoms import LabelConfig, open_atoms
from scitoolkit.potentials.config import PotentialConfig
from scitoolkit.potentials.data import GraphSet
from scitoolkit.potentials.frames import frames_of_job
from scitoolkit.potentials.graph import collate
from scitoolkit.potentials.loss import PotentialTask
from scitoolkit.potentials.stages import PotentialStages

SE_E2_A = {
    "name": "se_e2_a",
    "cutoff": 3.0,
    "cutoff_smooth": 1.0,
    "sel": [4],
    "embedding": [4],
    "axis_neurons": 2,
    "fitting": [4],
    "precision": "float64",
}


def dimers(count: int, seed: int, **info) -> list[Atoms]:
    rng, out = np.random.default_rng(seed), []
    for _ in range(count):
        atoms = Atoms("H2", [[0, 0, 0], [0, 0, 0.7 + 0.1 * rng.random()]])
        labels = {"energy": rng.normal(), "forces": rng.normal(size=(2, 3))}
        atoms.calc = SinglePointCalculator(atoms, **labels)
        atoms.info |= info
        out.append(atoms)
    return out


@pytest.fixture
def files(tmp_path):
    """Two files with frames of two types and one without, the last with a separate weight."""
    first = [*dimers(3, 0, config_type="bulk"), *dimers(3, 1, config_type="slab")]
    second = dimers(2, 2) + dimers(2, 3, config_weight=3.0, config_energy_weight=0.5)
    paths = [tmp_path / "one.xyz", tmp_path / "two.xyz"]
    for path, frames in zip(paths, (first, second), strict=True):
        ase.io.write(path, frames, format="extxyz")
    return paths


def config(paths, **weights):
    return PotentialConfig.model_validate(
        {
            "workflow": "w",
            "data": {"path": [str(path) for path in paths], "weights": weights},
            "model": SE_E2_A,
            "split": {"validation": 0.2},
        }
    )


def labelled(paths, **weights):
    return frames_of_job(config(paths, **weights), generated=False).labelled


OWN = [(1.0, 1.0)] * 8 + [(1.5, 3.0)] * 2


@pytest.mark.parametrize(
    ("weights", "factors"),
    [
        ({}, [1.0] * 10),
        ({"config_types": {"slab": 0.25}}, [1.0] * 3 + [0.25] * 3 + [1.0] * 4),
        ({"files": {"two.xyz": 2.0}}, [1.0] * 6 + [2.0] * 4),
        ({"files": {"*.xyz": 2.0, "one*": 3.0}}, [6.0] * 6 + [2.0] * 4),
        (
            {"config_types": {"bulk": 0.5}, "files": {"one.xyz": 4.0}},
            [2.0] * 3 + [4.0] * 3 + [1.0] * 4,
        ),
    ],
)
def test_weights_multiply(files, weights, factors):
    frames = labelled(files, **weights)
    expected = [(f * e, f * forces) for f, (e, forces) in zip(factors, OWN, strict=True)]
    assert [frame.weights[:2] for frame in frames] == expected


def test_the_loss_is_the_mean_with_the_weights(files):
    job = config(files, config_types={"slab": 0.25}, files={"two.xyz": 2.0})
    data = frames_of_job(job, generated=False)
    model = job.model.build(["H"])
    task = PotentialTask(model, job.loss)
    graphs = GraphSet(data.labelled, range(len(data.labelled)), ["H"], model.cutoff)
    graphs = [graphs[number] for number in range(len(graphs))]
    plain = [{k: v for k, v in graph.items() if k != "weights"} for graph in graphs]
    expected, metrics = 0.0, []
    for graph, frame in zip(plain, data.labelled, strict=True):
        parts = task.loss(graph)[1]
        for name, weight in zip(("energy", "forces"), frame.weights, strict=False):
            preference = job.loss.weights(1.0)[name]
            expected += weight * preference * float(parts[f"{name}_loss"].detach()) / len(graphs)
        metrics.append(float(task.metrics(graph)["energy_mse"].detach()))
    assert float(task.loss(collate(graphs))[0].detach()) == pytest.approx(expected, rel=1e-12)
    told = task.metrics(collate(graphs))
    assert float(told["energy_mse"].detach()) == pytest.approx(np.mean(metrics), rel=1e-12)
    unweighted = task.metrics(collate(plain))["loss"].detach()
    assert float(told["loss"].detach()) != pytest.approx(float(unweighted))
    ones = labelled([files[0]])
    without = GraphSet(ones, range(6), ["H"], model.cutoff)
    assert not any("weights" in without[number] for number in range(6))


def test_a_label_of_weight_zero_is_not_read(files, tmp_path):
    off = dimers(2, 5, config_forces_weight=0.0)
    ase.io.write(tmp_path / "off.xyz", off, format="extxyz")
    frames = labelled([*files, tmp_path / "off.xyz"], config_types={"bulk": 0.0})
    assert [frame.energy is None for frame in frames] == [True] * 3 + [False] * 9
    assert [frame.forces is None for frame in frames] == [True] * 3 + [False] * 7 + [True] * 2


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"config_types": {"bulky": 1.0}}, r"no frame is of 'bulky'.*bulk, slab"),
        ({"files": {"three.xyz": 1.0}}, r"no frame is of 'three.xyz'.*one.xyz, two.xyz"),
    ],
)
def test_names_that_nothing_has_are_refused(files, weights, message):
    with pytest.raises(ConfigError, match=message):
        labelled(files, **weights)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf"), "heavy"])
def test_weights_that_are_none_are_refused(tmp_path, value):
    path = tmp_path / "a.xyz"
    ase.io.write(path, dimers(1, 0, config_weight=value), format="extxyz")
    with pytest.raises(DataError, match=r"config_weight is .*a number from 0"):
        open_atoms(path)[0]
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        config([path], config_types={"a": -1.0})


def test_a_weight_is_not_taken_for_a_label(tmp_path):
    atoms = dimers(1, 0, config_energy_weight=2.0)[0]
    atoms.calc = None
    ase.io.write(tmp_path / "a.xyz", atoms, format="extxyz")
    frame = open_atoms(tmp_path / "a.xyz", LabelConfig())[0]
    assert frame.energy is None
    assert frame.weights == (2.0, 1.0, 1.0)


def test_the_report_has_errors_by_type(files):
    job, frames = config(files), open_atoms(files)
    model = job.model.build(["H"]).eval()
    results = PotentialStages().evaluate(job, model, frames_of_job(job, generated=False), None)
    (table,) = [t for t in results.tables if t.title == "RMSE by config_type"]
    assert [row[:2] for row in table.rows] == [["(none)", 4], ["bulk", 3], ["slab", 3]]
    graphs = GraphSet(frames, range(10), ["H"], model.cutoff)
    for row, chosen in zip(table.rows, (range(6, 10), range(3), range(3, 6)), strict=True):
        energy, forces = [], []
        for number in chosen:
            graph = graphs[number]
            out = model(graph)
            energy.append((out["energy"] - graph["energy"]).item() / 2)
            forces.append((out["forces"] - graph["forces"]).flatten())
        assert row[2] == pytest.approx(1e3 * np.sqrt(np.mean(np.square(energy))))
        expected = 1e3 * torch.cat(forces).square().mean().sqrt().item()
        assert row[3] == pytest.approx(expected)
