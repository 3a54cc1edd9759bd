"""Configuration files of mace_run_train and nequip-train: translated, or refused by key."""

import ase.build
import ase.io
import numpy as np
import pytest

from scitoolkit.core.config import ConfigProblems
from scitoolkit.core.errors import ConfigError
from scitoolkit.potentials import PotentialConfig
from scitoolkit.potentials.equivariant import mace_input, nequip_input


@pytest.fixture
def frames(tmp_path):
    path = tmp_path / "train.xyz"
    water = ase.build.molecule("H2O")
    water.info["REF_energy"], water.arrays["REF_forces"] = -1.0, np.zeros((3, 3))
    ase.io.write(path, [water] * 4, format="extxyz")
    return path


def test_an_example_of_the_documentation_of_mace_is_translated(frames):
    # https://mace-docs.readthedocs.io/en/latest/guide/training.html, as YAML
    raw = {
        "name": "MACE_model",
        "train_file": str(frames),
        "valid_fraction": 0.05,
        "test_file": str(frames),
        "config_type_weights": '{"Default":1.0}',
        "E0s": "{1: -13.6, 8: -430.0}",
        "model": "MACE",
        "hidden_irreps": "128x0e + 128x1o",
        "r_max": 5.0,
        "batch_size": 10,
        "max_num_epochs": 1500,
        "ema": True,
        "ema_decay": 0.99,
        "amsgrad": True,
        "device": "cpu",
    }
    config = PotentialConfig.model_validate(mace_input.translate(raw))
    assert config.model.channels == 128
    assert (config.model.lmax_hidden, config.model.lmax, config.model.cutoff) == (1, 3, 5.0)
    assert not config.model.first_residual
    assert config.model.residual
    assert config.e0 == {"H": -13.6, "O": -430.0}
    assert config.data.labels.energy_key == "REF_energy"
    assert config.split.validation == 0.05
    assert (config.training.epochs, config.training.ema_decay) == (1500, 0.99)
    assert config.training.schedule.patience == 51
    weights = config.loss.weights(0.3)
    # Per frame of three atoms (dE)²/3 here and (dE/3)² there.
    assert weights["energy"] == pytest.approx(1 / 3)
    assert weights["forces"] == pytest.approx(100.0)


def test_channels_and_degree_come_before_irreps(frames):
    raw = {"name": "m", "train_file": str(frames), "num_channels": 32, "max_L": 2}
    raw |= {"model": "ScaleShiftMACE", "interaction": "RealAgnosticDensityInteractionBlock"}
    config = PotentialConfig.model_validate(mace_input.translate(raw))
    assert (config.model.channels, config.model.lmax_hidden) == (32, 2)
    assert config.model.first_residual
    assert config.model.density
    assert not config.model.residual


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("loss", "universal"),
        ("swa", True),
        ("foundation_model", "small"),
        ("heads", "{}"),
        ("E0s", "foundation"),
        ("hidden_irreps", "128x0e + 64x1o"),
        ("hidden_irreps", "128x0e + 128x1e"),
        ("num_channels", 16),
        ("interaction", "RealAgnosticAttResidualInteractionBlock"),
        ("scheduler", "ExponentialLR"),
        ("optimizer", "schedulefree"),
        ("model", "AtomicDipolesMACE"),
        ("embedding_specs", []),
        ("r_maxx", 4.0),
    ],
)
def test_a_key_without_a_counterpart_is_refused_by_name(frames, key, value):
    raw = {"name": "m", "train_file": str(frames), key: value}
    with pytest.raises(ConfigProblems, match=key):
        mace_input.translate(raw)


def test_a_configuration_of_nequip_is_refused_as_one():
    raw = {"run": ["train"], "data": {}, "trainer": {}, "training_module": {"_target_": "x"}}
    with pytest.raises(ConfigError, match="nequip-train, whose keys are not read: run, data"):
        nequip_input.translate(raw)


def test_other_configurations_are_left_alone():
    own = {"domain": "potentials", "name": "x", "data": {"path": ["a.xyz"]}}
    assert mace_input.translate(own) is None
    assert nequip_input.translate(own) is None
