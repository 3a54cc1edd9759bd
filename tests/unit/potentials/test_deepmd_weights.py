"""Against numbers of deepmd-kit 3.2.0, made by tests/golden/deepmd/make.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from scitoolkit.core.errors import DataError
from scitoolkit.io.atoms import Configuration
from scitoolkit.potentials.deepmd.file import read_tree, write_tree
from scitoolkit.potentials.deepmd.weights import read_deepmd, write_deepmd
from scitoolkit.potentials.prediction import predict_frame

GOLDEN = Path(__file__).parents[2] / "golden" / "deepmd"


@pytest.fixture(scope="module")
def expected():
    with np.load(GOLDEN / "expected.npz") as file:
        return dict(file)


def frame(expected):
    species = np.array(["O", "H"])[expected["type"]]
    return Configuration(species, expected["coord"], expected["box"], np.ones(3, bool))


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("name", ["one_side", "two_side", "radial"])
def test_energies_forces_and_virials_are_deepmd_kits(expected, name, kernels):
    model = read_deepmd(GOLDEN / f"{name}.dp")
    model.descriptors[0].use_kernels = kernels
    found = predict_frame(model, frame(expected))
    for ours, theirs in (("energy", "energy"), ("forces", "force"), ("virial", "virial")):
        wanted = expected[f"{name}_{theirs}"].reshape(found[ours].shape)
        assert np.abs(found[ours] - wanted).max() < 1e-10 * np.abs(wanted).max()


@pytest.mark.parametrize("name", ["one_side", "two_side", "radial"])
def test_what_is_written_reads_back_the_same(expected, name, tmp_path):
    model = read_deepmd(GOLDEN / f"{name}.dp")
    again = read_deepmd(write_deepmd(model, tmp_path / "again.dp"))
    assert again.config == model.config
    for key, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[key], value), key


@pytest.mark.parametrize("part", ["descriptor", "fitting"])
def test_a_file_of_two_precisions_is_read_in_the_higher_one(expected, part, tmp_path):
    tree = read_tree(GOLDEN / "one_side.dp")
    tree["model"][part]["precision"] = "float32"
    model = read_deepmd(write_tree(tree, tmp_path / "mixed.dp"))
    assert model.config.precision == "float64"
    same = read_deepmd(GOLDEN / "one_side.dp")
    forces = [predict_frame(each, frame(expected))["forces"] for each in (model, same)]
    assert np.array_equal(*forces)
    tree["model"][part]["precision"] = "float16"
    with pytest.raises(DataError, match="precision float16 is not supported"):
        read_deepmd(write_tree(tree, tmp_path / "half.dp"))


@pytest.mark.parametrize(("name", "jumps"), [("exclude_two_side", True), ("two_side", False)])
def test_jumps_of_excluded_neighbours_are_warned_of(name, jumps, caplog):
    read_deepmd(GOLDEN / f"{name}.dp")
    assert ("energies jump" in caplog.text) == jumps


def test_another_file_is_refused(tmp_path):
    (tmp_path / "a.dp").write_text("nothing")
    with pytest.raises(DataError, match="convert-backend"):
        read_deepmd(tmp_path / "a.dp")


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        (("descriptor",), "new_option", True),
        (("fitting",), "atom_ener", [np.array([-1.0]), None]),
        (("fitting",), "tot_ener_zero", True),
        (("fitting", "nets", "networks", 0, "layers", 0), "activation_function", "relu"),
        (("descriptor", "embeddings", "networks", 0, "layers", 1), "resnet", False),
        (("fitting",), "@new_variables", {"scale": 2.0}),
        ((), "another_part", {"type": "pairtab"}),
    ],
)
def test_a_setting_that_nothing_here_reads_is_refused(section, key, value, tmp_path):
    from scitoolkit.potentials.deepmd.file import read_tree, write_tree

    tree = read_tree(GOLDEN / "one_side.dp")
    part = tree["model"]
    for name in section:
        part = part[name]
    part[key] = value
    with pytest.raises(DataError, match=key if key != "activation_function" else "relu"):
        read_deepmd(write_tree(tree, tmp_path / "changed.dp"))
