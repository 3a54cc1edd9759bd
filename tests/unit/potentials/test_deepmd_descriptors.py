"""Against numbers of deepmd-kit 3.2.0, made by tests/golden/deepmd/make_dense.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from scitoolkit.io.atoms import Configuration
from scitoolkit.potentials.deepmd_weights import read_deepmd
from scitoolkit.potentials.prediction import predict_frame

GOLDEN = Path(__file__).parents[2] / "golden" / "deepmd"
ATTENTION = ["atten_concat", "atten_strip", "atten_two_layers", "atten_strip_layer", "atten_plain"]
NAMES = [
    "exclude_one_side", "exclude_two_side", "exclude_radial", "parameters", "hybrid",
    "three_types", *ATTENTION, "hybrid_atten",
]  # fmt: skip


@pytest.fixture(scope="module")
def expected():
    with np.load(GOLDEN / "expected_dense.npz") as file:
        return dict(file)


def frame(expected):
    species = np.array(["O", "H"])[expected["type"]]
    return Configuration(
        species, expected["coord"], expected["box"], np.ones(3, bool),
        frame_parameters=expected["fparam"], atom_parameters=expected["aparam"],
    )  # fmt: skip


def use_kernels(model, wanted):
    for each in getattr(model, "descriptors", [model]):
        each.use_kernels = wanted


@pytest.mark.parametrize("name", NAMES)
def test_energies_forces_and_virials_are_deepmd_kits(expected, name):
    model = read_deepmd(GOLDEN / f"{name}.dp")
    for kernels in (True, False):
        use_kernels(model, kernels)
        found = predict_frame(model, frame(expected))
        wanted = expected[f"{name}_energy"]
        assert np.abs(found["energy"] - wanted).max() < 1e-13 * max(1, np.abs(wanted).max())
        for ours, theirs in (("forces", "force"), ("virial", "virial")):
            wanted = expected[f"{name}_{theirs}"].reshape(found[ours].shape)
            assert np.abs(found[ours] - wanted).max() < 1e-9 * np.abs(wanted).max(), ours
