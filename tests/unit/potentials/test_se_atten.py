"""se_atten by its kernels and in plain torch: the same energies, forces and virials."""

from __future__ import annotations

import copy
import logging

import numpy as np
import pytest
import torch

from scitoolkit.io.atoms import Configuration
from scitoolkit.ops.codegen.dispatch import refresh
from scitoolkit.potentials import models
from scitoolkit.potentials.graph import collate, configuration_graph

TYPES = ["O", "H", "Si"]
SMALL = {
    "name": "se_atten",
    "cutoff": 3.5,
    "cutoff_smooth": 1.0,
    "sel": 30,
    "embedding": [4, 8],
    "axis_neurons": 3,
    "type_width": 4,
    "attention_width": 6,
}
PAIR = {
    "name": "se_e2_a",
    "cutoff": 3.0,
    "cutoff_smooth": 1.0,
    "sel": [9, 9, 9],
    "embedding": [4, 8],
    "axis_neurons": 3,
}
CASES = {
    "defaults": [SMALL],
    "strip": [{**SMALL, "type_input": "strip"}],
    "strip_not_smooth": [{**SMALL, "type_input": "strip", "smooth": False}],
    "one_side": [{**SMALL, "type_one_side": True, "attention_layers": 3}],
    "no_attention": [{**SMALL, "attention_layers": 0}],
    "no_gate": [{**SMALL, "angular_gate": False, "normalize": False, "temperature": 0.7}],
    "excluded": [{**SMALL, "exclude_types": [[0, 1], [2, 2]]}],
    "type_not_shown": [{**SMALL, "type_output": False}],
    "floor": [{**SMALL, "smooth": False, "gate_floor": 0.5, "temperature": 1.0}],
    "few_places": [{**SMALL, "sel": 4}],
    "hybrid": [PAIR, SMALL, {**SMALL, "cutoff": 2.5}],
}


def frame(seed=0, atoms=23):
    random = np.random.default_rng(seed)
    grid = np.stack(np.meshgrid(*[np.arange(3)] * 3, indexing="ij"), -1).reshape(-1, 3)[:atoms]
    positions = 2.1 * grid + random.normal(scale=0.2, size=(atoms, 3))
    return Configuration(random.choice(TYPES, atoms), positions, 6.3 * np.eye(3), np.ones(3, bool))


def model_of(parts, **others):
    settings = {"descriptors": parts, "fitting": [8, 8], **others}
    config = models.get("deep_potential")(**settings)
    model = config.build(TYPES)
    graphs = [configuration_graph(frame(seed), TYPES, model.cutoff) for seed in range(2)]
    model.fit_statistics([{**each, "energy": torch.ones(1).double()} for each in graphs])
    return model.eval(), collate(graphs)


def both(model, graph):
    out = []
    for kernels in (True, False):
        for each in model.descriptors:
            each.use_kernels = kernels
        out.append(model(graph))
    return out


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("case", CASES)
def test_kernels_equal_the_reference(case, precision):
    model, graph = model_of(CASES[case], precision=precision)
    if case == "few_places" and precision == "float32":
        # Descriptors of four places are some 1,000 times larger. Unscaled, every tanh of the
        # fitting network is saturated, 1 - tanh² has no digits left in float32, and the forces of
        # one frame are 0 whatever the kernels of the descriptor return.
        with torch.no_grad():
            model.fitting.weight[0].mul_(1e-3)
    assert all(each.chunked(torch.zeros(1, 3, dtype=model.dtype)) for each in model.descriptors)
    limit = 1e-11 if precision == "float64" else 2e-3
    ours, wanted = both(model, graph)
    for key in ("atomic_energy", "forces", "virial"):
        scale = wanted[key].abs().max()
        assert (ours[key] - wanted[key]).abs().max() <= limit * scale, key


def test_forces_are_differences_of_energies():
    model, _ = model_of([SMALL])
    start = frame(5)

    def found(positions):
        graph = configuration_graph(
            Configuration(start.species, positions, start.cell, start.pbc), TYPES, model.cutoff
        )
        return model(graph)

    forces, step = found(start.positions)["forces"], 1e-5
    for atom, axis in ((0, 0), (7, 2)):
        shift = np.zeros_like(start.positions)
        shift[atom, axis] = step
        above, below = (found(start.positions + s)["energy"] for s in (shift, -shift))
        slope = float(above - below) / (2 * step)
        assert abs(-slope - float(forces[atom, axis])) < 1e-7 * float(forces.abs().max()) + 1e-9


def test_atoms_without_neighbours_and_parameters_given_to_all():
    model, _ = model_of([SMALL])
    alone = Configuration(
        np.array(["O", "H"]),
        np.array([[0.0, 0, 0], [20, 0, 0]]),
        np.zeros((3, 3)),
        np.zeros(3, bool),
    )
    ours, wanted = both(model, configuration_graph(alone, TYPES, model.cutoff))
    assert torch.allclose(ours["atomic_energy"], wanted["atomic_energy"], rtol=0, atol=1e-13)
    assert not ours["forces"].any()


def test_weights_that_change_are_packed_again():
    model, graph = model_of([SMALL])
    before = both(model, graph)[0]["energy"]
    with torch.no_grad():
        model.descriptors[0].layers[1].mix.mul_(1.5)
        model.descriptors[0].type_embedding.mul_(1.1)
    ours, wanted = both(model, graph)
    assert (ours["energy"] - wanted["energy"]).abs().max() < 1e-11 * wanted["energy"].abs().max()
    assert (ours["energy"] - before).abs().max() > 1e-6


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"embedding_resnet_dt": "all"}, "with a time step"),
        ({"embedding": [9, 8]}, "residual connection over the type embedding"),
        ({"embedding": [2, 8]}, "first width below 3"),
    ],
)
def test_what_has_no_kernels_runs_in_torch_and_says_so(change, reason, caplog):
    refresh()
    model, graph = model_of([{**SMALL, **change}])
    with caplog.at_level(logging.WARNING):
        ours, wanted = both(model, graph)
    assert reason in caplog.text
    assert torch.equal(ours["energy"], wanted["energy"])


def test_a_copy_packs_its_own_weights():
    model, graph = model_of([SMALL])
    before = both(model, graph)[0]["energy"]
    other = copy.deepcopy(model)
    with torch.no_grad():
        model.descriptors[0].layers[0].mix.mul_(2.0)
    assert torch.equal(both(other, graph)[0]["energy"], before)
    assert not torch.equal(both(model, graph)[0]["energy"], before)
