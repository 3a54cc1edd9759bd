from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from scitoolkit import api
from scitoolkit.core.config import ConfigProblems

DATA = Path(__file__).parents[3] / "datasets" / "water_deepmd"


def settings():
    return {
        "_comment": "as deepmd-kit's own example",
        "model": {
            "type_map": ["O", "H"],
            "descriptor": {
                "type": "se_e2_a",
                "sel": [46, 92],
                "rcut_smth": 0.5,
                "rcut": 6.0,
                "neuron": [25, 50, 100],
                "resnet_dt": False,
                "axis_neuron": 16,
                "type_one_side": True,
                "precision": "float64",
                "seed": 1,
                "_comment": "all",
            },
            "fitting_net": {"neuron": [240, 240, 240], "resnet_dt": True, "seed": 1},
        },
        "learning_rate": {
            "type": "exp",
            "decay_steps": 5000,
            "start_lr": 0.001,
            "stop_lr": 3.51e-8,
        },
        "loss": {
            "type": "ener",
            "start_pref_e": 0.02,
            "limit_pref_e": 1,
            "start_pref_f": 1000,
            "limit_pref_f": 1,
            "start_pref_v": 0,
            "limit_pref_v": 0,
        },
        "training": {
            "training_data": {"systems": ["data/data_0/", "data/data_1/"], "batch_size": "auto"},
            "validation_data": {"systems": ["data/data_3"], "batch_size": 1, "numb_btch": 3},
            "numb_steps": 1000000,
            "seed": 10,
            "disp_file": "lcurve.out",
            "disp_freq": 100,
            "save_freq": 1000,
        },
    }


def write(tmp_path, values):
    (tmp_path / "data").symlink_to(DATA)
    (tmp_path / "input.json").write_text(json.dumps(values))
    return tmp_path / "input.json"


def test_an_input_of_deepmd_kit_is_taken_as_it_is(tmp_path):
    _, config = api.load(write(tmp_path, settings()), ["training.disp_freq=7"])
    assert config.model.descriptors[0].sel == [46, 92]
    assert config.data.path[0].is_dir()
    training = config.training
    assert (training.batch_size, training.steps, training.log_every) == (1, 1000000, 7)
    # deepmd-kit: start_lr * decay_rate ** (step // decay_steps)
    decay = math.exp(math.log(3.51e-8 / 1e-3) / (1000000 / 5000))
    for step in (0, 4999, 5000, 123456):
        factor = training.schedule.factor(step, training.steps)
        assert factor == pytest.approx(decay ** (step // 5000), rel=1e-9)


@pytest.mark.parametrize(
    ("descriptor", "fitting", "wanted"),
    [
        ("float32", "float32", "float32"),
        ("float32", None, "float64"),
        ("default", "float32", "float64"),
        ("low", "single", "float32"),
    ],
)
def test_the_highest_precision_of_descriptor_and_fitting_net_is_taken(
    descriptor, fitting, wanted, tmp_path
):
    values = settings()
    values["model"]["descriptor"]["precision"] = descriptor
    if fitting is not None:
        values["model"]["fitting_net"]["precision"] = fitting
    assert api.load(write(tmp_path, values))[1].model.precision == wanted


def test_a_mixed_precision_of_the_fitting_net_is_refused_by_name(tmp_path):
    values = settings()
    values["model"]["fitting_net"]["precision"] = "mixed"
    with pytest.raises(ConfigProblems, match=r"model\.fitting_net\.precision"):
        api.load(write(tmp_path, values))


def test_other_descriptors_and_parameters_are_taken(tmp_path):
    values = settings()
    plain = values["model"]["descriptor"]
    values["model"]["fitting_net"]["numb_fparam"] = 2
    values["model"]["descriptor"] = {
        "type": "hybrid",
        "list": [
            {**plain, "exclude_types": [[0, 0]]},
            {"type": "se_e2_r", "sel": [9, 18], "rcut": 3.0, "neuron": [8]},
            {
                "type": "dpa1",
                "sel": 30,
                "rcut": 4.0,
                "attn_layer": 1,
                "_comment": "new",
                "smooth_type_embedding": True,
                "stripped_type_embedding": True,
            },
        ],
    }
    _, config = api.load(write(tmp_path, values))
    model = config.model
    assert [each.name for each in model.descriptors] == ["se_e2_a", "se_e2_r", "se_atten"]
    assert model.descriptors[0].exclude_types == [(0, 0)]
    # deepmd-kit's defaults, which are not ours
    assert model.descriptors[1].type_one_side is False
    attention = model.descriptors[2]
    assert (attention.axis_neurons, attention.type_width, attention.attention_width) == (4, 8, 128)
    assert attention.type_input == "strip"
    assert attention.smooth
    assert (model.frame_parameters, model.atom_parameters) == (2, 0)
    assert (model.cutoff, model.fitting) == (6.0, [240, 240, 240])
    model.build(["O", "H"])


def test_se_e2_r_with_and_without_a_mean(tmp_path):
    values = settings()
    values["model"]["descriptor"] = {"type": "se_e2_r", "sel": [9, 18], "neuron": [8]}
    _, config = api.load(write(tmp_path, values))
    assert config.model.descriptors[0].name == "se_e2_r"
    assert not config.model.descriptors[0].zero_mean
    values["model"]["descriptor"]["set_davg_zero"] = True
    (tmp_path / "input.json").write_text(json.dumps(values))
    _, config = api.load(tmp_path / "input.json")
    assert config.model.descriptors[0].zero_mean


def test_what_cannot_be_honoured_is_refused_by_name(tmp_path):
    values = settings()
    values["model"]["descriptor"]["env_protection"] = 0.1
    values["model"]["type_embedding"] = {"neuron": [8]}
    values["model"]["fitting_net"]["default_fparam"] = [2.0]
    values["training"]["mixed_precision"] = {}
    with pytest.raises(ConfigProblems) as caught:
        api.load(write(tmp_path, values))
    keys = {problem.key for problem in caught.value.problems}
    assert keys == {
        "model.descriptor.env_protection",
        "model.fitting_net.default_fparam",
        "model.type_embedding",
        "training.mixed_precision",
    }


def test_another_descriptor_is_named_once(tmp_path):
    values = settings()
    values["model"]["descriptor"]["type"] = "se_e3"
    with pytest.raises(ConfigProblems, match="se_e3") as caught:
        api.load(write(tmp_path, values))
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize(("size", "frames"), [("auto", 8), ("auto:10", 3), (["auto"], 8)])
def test_the_smallest_system_decides_the_automatic_batch_size(tmp_path, size, frames):
    values = settings()
    names = []
    for atoms in (64, 4, 20):
        lines = [f"{'HO'[k % 2]} 0 0 {k}" for k in range(atoms)]
        (tmp_path / f"{atoms}.xyz").write_text("\n".join([str(atoms), "energy=-1.0", *lines, ""]))
        names.append(str(tmp_path / f"{atoms}.xyz"))
    values["training"]["training_data"] = {"systems": names, "batch_size": size}
    assert api.load(write(tmp_path, values))[1].training.batch_size == frames
