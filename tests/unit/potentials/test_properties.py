"""Against deepmd-kit 3.2.0 (golden/deepmd/make_dense.py): dipoles, polarisabilities, DOS."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.io.atoms import Configuration
from scitoolkit.potentials import read_deepmd, read_deepmd_property
from scitoolkit.potentials.deepmd.config import DeepPotentialConfig
from scitoolkit.potentials.deepmd.properties import PropertyModel
from scitoolkit.potentials.graph import collate, configuration_graph

GOLDEN = Path(__file__).parents[2] / "golden" / "deepmd"
NAMES = ["dipole", "polar_diagonal", "polar_full", "dos"]


@pytest.fixture(scope="module")
def expected():
    with np.load(GOLDEN / "expected_dense.npz") as file:
        return dict(file)


def frame(expected):
    species = np.array(["O", "H"])[expected["type"]]
    return Configuration(species, expected["coord"], expected["box"], np.ones(3, bool))


def values(model, *frames):
    graphs = [configuration_graph(each, model.type_map, model.cutoff) for each in frames]
    with torch.no_grad():
        return {key: value.numpy() for key, value in model(collate(graphs)).items()}


@pytest.mark.parametrize("name", NAMES)
def test_properties_are_deepmd_kits(expected, name):
    found = values(read_deepmd_property(GOLDEN / f"{name}.dp"), frame(expected))
    for part in ("atomic", "total"):
        wanted = expected[f"{name}_{part}"].reshape(found[part].shape)
        assert np.abs(wanted).max() > 1e-3
        assert np.abs(found[part] - wanted).max() < 1e-12 * np.abs(wanted).max()


def test_vectors_and_tensors_turn_with_the_atoms(expected):
    one = frame(expected)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))[0]
    other = replace(one, positions=one.positions @ turn, cell=one.cell @ turn)
    for name, turned in (
        ("dipole", lambda v: v @ turn),
        ("polar_full", lambda v: turn.T @ v @ turn),
        ("polar_diagonal", lambda v: turn.T @ v @ turn),
        ("dos", lambda v: v),
    ):
        model = read_deepmd_property(GOLDEN / f"{name}.dp")
        both = values(model, one, other)["total"]
        assert np.allclose(both[1], turned(both[0]), atol=1e-12)


def test_energies_and_properties_have_their_own_readers():
    with pytest.raises(DataError, match="read_deepmd_property"):
        read_deepmd(GOLDEN / "dipole.dp")
    with pytest.raises(DataError, match="dipole, polar, dos"):
        read_deepmd_property(GOLDEN / "hybrid.dp")
    radial = {"name": "se_e2_r", "sel": [4], "embedding": [4]}
    config = DeepPotentialConfig.model_validate({"descriptors": [radial]})
    with pytest.raises(ConfigError, match="requires descriptors with directions"):
        PropertyModel(config, ["O"], "dipole")
