"""Against numbers of deepmd-kit 3.2.0, made by tests/golden/deepmd/make_dense.py."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from scitoolkit.core.errors import DataError
from scitoolkit.io.atoms import Configuration
from scitoolkit.potentials.deepmd.model import DeepPotential
from scitoolkit.potentials.deepmd.weights import read_deepmd, write_deepmd
from scitoolkit.potentials.prediction import predict_frame

GOLDEN = Path(__file__).parents[2] / "golden" / "deepmd"
ATTENTION = ["atten_concat", "atten_strip", "atten_two_layers", "atten_strip_layer", "atten_plain"]
NAMES = [
    "exclude_one_side",
    "exclude_two_side",
    "exclude_radial",
    "parameters",
    "hybrid",
    "three_types",
    *ATTENTION,
    "hybrid_atten",
]


@pytest.fixture(scope="module")
def expected():
    with np.load(GOLDEN / "expected_dense.npz") as file:
        return dict(file)


def frame(expected):
    species = np.array(["O", "H"])[expected["type"]]
    return Configuration(
        species,
        expected["coord"],
        expected["box"],
        np.ones(3, bool),
        frame_parameters=expected["fparam"],
        atom_parameters=expected["aparam"],
    )


def use_kernels(model, wanted):
    for each in model.descriptors:
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


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_reads_back_the_same(name, tmp_path):
    model = read_deepmd(GOLDEN / f"{name}.dp")
    again = read_deepmd(write_deepmd(model, tmp_path / "again.dp"))
    assert again.config == model.config
    for key, value in model.state_dict().items():
        assert torch.allclose(again.state_dict()[key], value, rtol=0, atol=1e-15), key


def test_given_parameters_change_the_energy_and_are_asked_for(expected):
    model = read_deepmd(GOLDEN / "parameters.dp")
    assert isinstance(model, DeepPotential)
    one = predict_frame(model, frame(expected))["energy"]
    other = replace(frame(expected), frame_parameters=expected["fparam"] + 0.1)
    assert abs(predict_frame(model, other)["energy"] - one) > 1e-6
    with pytest.raises(DataError, match="frame parameters"):
        predict_frame(model, replace(frame(expected), frame_parameters=None))


def test_what_is_not_built_is_refused_by_name(tmp_path):
    from scitoolkit.potentials.deepmd.file import read_tree, write_tree

    def changed(name, **settings):
        tree = read_tree(GOLDEN / f"{name}.dp")
        tree["model"]["descriptor"].update(settings)
        return write_tree(tree, tmp_path / "changed.dp")

    with pytest.raises(DataError, match="use_econf_tebd"):
        read_deepmd(changed("atten_concat", use_econf_tebd=True))
    with pytest.raises(DataError, match="env_protection"):
        read_deepmd(changed("parameters", env_protection=0.1))
    tree = read_tree(GOLDEN / "atten_concat.dp")
    tree["model"]["descriptor"]["@variables"]["davg"][:, :, 0] = 0.1
    with pytest.raises(DataError, match="set_davg_zero"):
        read_deepmd(write_tree(tree, tmp_path / "mean.dp"))


def test_attention_of_the_tensorflow_backend_is_its_own(tmp_path):
    # Trained there: logits without scale, and a gate that fades within 0.3 % of the cutoff.
    with np.load(GOLDEN / "expected_tensorflow.npz") as file:
        expected = dict(file)
    model = read_deepmd(GOLDEN / "atten_tensorflow.dp")
    again = read_deepmd(write_deepmd(model, tmp_path / "again.dp"))
    assert again.config == model.config
    species = np.array(["O", "H"])[expected["type"]]
    water = Configuration(species, expected["coord"], expected["box"], np.ones(3, bool))
    for each, kernels in ((model, True), (model, False), (again, True)):
        use_kernels(each, kernels)
        found = predict_frame(each, water)
        assert abs(found["energy"] / expected["energy"] - 1) < 1e-13
        for ours, theirs in (("forces", "force"), ("virial", "virial")):
            wanted = expected[theirs].reshape(found[ours].shape)
            assert np.abs(found[ours] - wanted).max() < 1e-9 * np.abs(wanted).max(), ours


def test_attention_that_no_backend_has_is_not_written(tmp_path):
    from scitoolkit.potentials.deepmd.file import read_tree, write_tree

    tree = read_tree(GOLDEN / "atten_tensorflow.dp")
    tree["model"]["descriptor"]["exclude_types"] = [[0, 1]]
    with pytest.raises(DataError, match="exclude_types of the TensorFlow"):
        read_deepmd(write_tree(tree, tmp_path / "excluded.dp"))
    model = read_deepmd(GOLDEN / "atten_tensorflow.dp")
    (own,) = model.descriptors
    own.config = own.config.model_copy(update={"temperature": 0.5})
    with pytest.raises(DataError, match="temperature"):
        write_deepmd(model, tmp_path / "other.dp")
