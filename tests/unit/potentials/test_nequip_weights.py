"""Checkpoints of nequip: equal energies and forces, or refused by name."""

import json
import os
import pickle
import subprocess
from pathlib import Path

import ase.io
import numpy as np
import pytest
import torch

from scitoolkit.core.errors import DataError
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.io.atoms import Configuration
from scitoolkit.potentials import NequipConfig, PotentialConfig, read_nequip
from scitoolkit.potentials.calculator import Calculator
from scitoolkit.potentials.export.calculator import LibraryCalculator
from scitoolkit.potentials.export.write import export_library
from scitoolkit.potentials.graph import configuration_graph
from scitoolkit.potentials.job import PotentialJob
from scitoolkit.potentials.saved import load_model

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden"
MAKER = GOLDEN / "make_nequip.py"
CHECKPOINT = GOLDEN / "nequip.ckpt"
ACAC = ROOT / "datasets" / "acac"
PEER = ROOT / ".venv-peers" / "nequip" / "bin" / "python"
CASES = sorted(
    {name.split("/")[0] for name in np.load(GOLDEN / "nequip_options.npz").files}
    - {"positions", "cell", "species"}
)


def _held(arrays, name):
    """The contents of a checkpoint."""
    shapes = json.loads(str(arrays[f"{name}/shapes"]))
    sizes = [int(np.prod(shape)) for shape in shapes.values()]
    parts = torch.from_numpy(arrays[f"{name}/state"]).split(sizes)
    state = {key: part.reshape(shapes[key]) for key, part in zip(shapes, parts, strict=True)}
    hyper = json.loads(str(arrays[f"{name}/hyper_parameters"]))
    return {"hyper_parameters": hyper, "state_dict": state}


def _check(arrays, name, folder):
    path = folder / "model.ckpt"
    torch.save(_held(arrays, name), path)
    frame = Configuration(
        arrays["species"], arrays["positions"], arrays["cell"], np.ones(3, dtype=bool)
    )
    model = read_nequip(path)
    out = model(configuration_graph(frame, model.type_map, model.cutoff))
    for key in ("energy", "forces"):
        value = arrays[f"{name}/{key}"]
        assert np.abs(out[key].detach().numpy() - value).max() <= 1e-12 * np.abs(value).max(), name


@pytest.mark.parametrize("name", CASES)
def test_equals_nequip(name, tmp_path):
    _check(np.load(GOLDEN / "nequip_options.npz"), name, tmp_path)


@pytest.mark.skipif(not PEER.exists(), reason="no .venv-peers/nequip: make peers")
@pytest.mark.slow
def test_random_models_of_the_product_of_options(tmp_path):
    """Built and trained by nequip in its own environment, with a seed of the day."""
    target, seed = tmp_path / "cases.npz", os.environ.get("SCITOOLKIT_TEST_SEED", "7")
    subprocess.run(
        [PEER, "-W", "ignore", MAKER, target, seed],
        check=True,
        capture_output=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    arrays = np.load(target)
    names = {name.split("/")[0] for name in arrays.files if "/" in name}
    assert len(names) >= 12
    for name in names:
        _check(arrays, name, tmp_path)
    _check_trained(target.with_suffix(".ckpt"), np.load(target.with_suffix(".trained.npz")))


def _check_trained(path, wanted):
    atoms = ase.io.read(ACAC / "test_MD_300K.xyz", 0)
    atoms.calc = Calculator(read_nequip(path), skin=0)
    assert atoms.get_potential_energy() == pytest.approx(float(wanted["energy"]), rel=1e-13)
    assert (
        np.abs(atoms.get_forces() - wanted["forces"]).max() <= 1e-12 * abs(wanted["forces"]).max()
    )


def test_a_checkpoint_of_nequip_train_equals_nequip():
    """With the moving average of the weights, which nequip evaluates, not the last weights."""
    _check_trained(CHECKPOINT, np.load(GOLDEN / "nequip.trained.npz"))
    model = read_nequip(CHECKPOINT)
    raw = torch.load(CHECKPOINT)["state_dict"]
    last = raw["model.sole_model.model.func.type_embed.embed_module.weight"]
    assert (model.embedding - last).abs().max() > 1e-6
    assert model.dtype == torch.float64
    assert read_nequip(CHECKPOINT, precision="float32").dtype == torch.float32


def _changed(tmp_path, change):
    held = torch.load(CHECKPOINT)
    change(held)
    path = tmp_path / "changed.ckpt"
    torch.save(held, path)
    return path


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("per_edge_type_cutoff", {"H": 2.0}, r"per_edge_type_cutoff is .*Allowed: None"),
        ("categorical_graph_field_embed", [{"field": "dataset"}], "categorical_graph_field_embed"),
        ("readout_mlp_hidden_layers_depth", 1, r"readout_mlp_hidden_layers_depth is 1.*Allowed: 0"),
        ("convnet_resnet", True, "convnet_resnet is True"),
        ("convnet_sc", False, "convnet_sc is False"),
        ("learnable_shift", True, "learnable_shift is True"),
        ("convnet_nonlinearity_type", "norm", "convnet_nonlinearity_type is 'norm'"),
        ("convnet_nonlinearity_gates", {"e": "ssp", "o": "abs"}, "convnet_nonlinearity_gates"),
        ("pair_potential", {"_target_": "nequip.nn.pair_potential.LennardJones"}, "LennardJones"),
        (
            "pair_potential",
            {"_target_": "nequip.nn.pair_potential.ZBL", "units": "real"},
            "ZBL with units: real",
        ),
        ("polynomial_cutoff_p", 5.5, r"polynomial_cutoff_p is 5.5.*a whole number"),
        ("avg_num_neighbors", {"H": 1.0, "C": 2.0, "O": 3.0}, "one number for all types"),
        ("radial_mlp_depth", 0, r"radial_mlp_depth is 0.*1 or more"),
        ("l_max", 4, "num_features|l_max is 4"),
        ("_target_", "allegro.model.AllegroModel", r"_target_ is 'allegro.*NequIPGNNModel"),
        ("_target_", "nequip.model.ModelFromPackage", "ModelFromPackage"),
        ("new_option", 1, r"new_option is 1.*no such option"),
        ("num_layers", 10**9, "layer2_convnet"),
        ("num_features", 10**6, "embed_module"),
        ("r_max", 5.0, "r_max 5.0 is not"),
        ("type_names", ["H", "C"], "embed_module.weight has shape"),
    ],
)
def test_an_option_that_the_network_does_not_have_is_refused(option, value, message, tmp_path):
    path = _changed(
        tmp_path, lambda held: held["hyper_parameters"]["model"].update({option: value})
    )
    with pytest.raises(DataError, match=message) as caught:
        read_nequip(path)
    assert "changed.ckpt" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda held: held.pop("hyper_parameters"), "not a checkpoint of nequip-train"),
        (lambda held: held.pop("state_dict"), "not a checkpoint of nequip-train"),
        (
            lambda held: held["hyper_parameters"]["info_dict"]["versions"].update(nequip="0.15.0"),
            r"nequip 0.15.0.*0.17 to 0.19",
        ),
        (
            lambda held: held["hyper_parameters"]["info_dict"]["versions"].update(nequip="0.20.0"),
            "pip install nequip==",
        ),
        (lambda held: held.update(schedulefree_optimizer_state_dict={}), "weights for evaluation"),
        (
            lambda held: held["state_dict"]["ema._extra_state"].update(is_holding_ema_weights=0),
            "saved during a validation",
        ),
        (lambda held: held["state_dict"].pop("ema.ema_weight_3"), "moving averages"),
        (lambda held: held["hyper_parameters"]["model"].pop("r_max"), "r_max"),
        (
            lambda held: held["state_dict"].update(
                {"model.sole_model.model.func.extra.weight": torch.ones(2)}
            ),
            "extra|moving averages",
        ),
        (
            lambda held: held["hyper_parameters"].update(
                model={"_target_": "nequip.model.ModelFromCheckpoint", "checkpoint_path": "no.ckpt"}
            ),
            r"no\.ckpt: no such file",
        ),
    ],
)
def test_other_checkpoints_are_refused(change, message, tmp_path):
    with pytest.raises(DataError, match=message):
        read_nequip(_changed(tmp_path, change))


def test_trained_roots_of_the_bessel_functions_are_refused(tmp_path):
    arrays = np.load(GOLDEN / "nequip_options.npz")
    held = _held(arrays, "plain")
    held["state_dict"]["model.sole_model.model.func.bessel_encode.bessel_weights"][0, 1] += 0.01
    torch.save(held, tmp_path / "m.ckpt")
    with pytest.raises(DataError, match="bessel_trainable is 'true, with trained roots'"):
        read_nequip(tmp_path / "m.ckpt")


def test_a_model_behind_kernels_or_a_fine_tuning_of_nequip_is_read(tmp_path):
    energy = np.load(GOLDEN / "nequip.trained.npz")

    def wrap(held):
        model = held["hyper_parameters"]["model"]
        kernels = [{"modifier": "enable_OpenEquivariance"}]
        held["hyper_parameters"]["model"] = {
            "_target_": "nequip.model.modify",
            "modifiers": kernels,
            "model": model,
        }

    def start(held):
        held["hyper_parameters"]["model"] = {
            "_target_": "nequip.model.ModelFromCheckpoint",
            "checkpoint_path": str(CHECKPOINT),
        }

    _check_trained(_changed(tmp_path, wrap), energy)
    _check_trained(_changed(tmp_path, start), energy)

    def scale(held):
        wrap(held)
        held["hyper_parameters"]["model"]["modifiers"][0]["modifier"] = "modify_Other"

    with pytest.raises(DataError, match="modify_Other"):
        read_nequip(_changed(tmp_path, scale))


def test_a_training_that_starts_from_itself_is_refused(tmp_path):
    def own_path(held):
        held["hyper_parameters"]["model"] = {
            "_target_": "nequip.model.ModelFromCheckpoint",
            "checkpoint_path": str(tmp_path / "changed.ckpt"),
        }

    def own_model(held):
        model = {"_target_": "nequip.model.modify", "modifiers": []}
        held["hyper_parameters"]["model"] = model | {"model": model}
        model["model"] = model

    for change, message in ((own_path, "starts from itself"), (own_model, "RecursionError")):
        with pytest.raises(DataError, match=message):
            read_nequip(_changed(tmp_path, change))


def test_every_tensor_of_a_checkpoint_matters(tmp_path):
    """Without any one of the tensors the model is refused; none is passed over."""
    held = _held(np.load(GOLDEN / "nequip_options.npz"), "parity")
    structural = ("output_mask", "_empty")
    for key, value in held["state_dict"].items():
        if key.endswith(structural) or "_w3j_" in key or not value.numel():
            continue
        state = {name: other for name, other in held["state_dict"].items() if name != key}
        torch.save({**held, "state_dict": state}, tmp_path / "m.ckpt")
        with pytest.raises(DataError):
            read_nequip(tmp_path / "m.ckpt")


class _Code:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_damaged_file_or_one_with_code_is_refused_and_not_executed(tmp_path):
    path, made = tmp_path / "damaged.ckpt", tmp_path / "made"
    whole = CHECKPOINT.read_bytes()
    for size in (0, 10, 1000, len(whole) // 2, len(whole) - 30):
        path.write_bytes(whole[:size])
        with pytest.raises(DataError):
            read_nequip(path)
    path.write_bytes(pickle.dumps({"hyper_parameters": _Code(str(made))}, protocol=2))
    with pytest.raises(DataError):
        read_nequip(path)
    with pytest.raises(DataError, match=r"it contains \S+mkdir, and pickled code is not executed"):
        read_nequip(_changed(tmp_path, lambda held: held.update(callbacks=_Code(str(made)))))
    assert not made.exists()
    with pytest.raises(DataError, match="no such file"):
        read_nequip(tmp_path / "none.ckpt")


@pytest.fixture(scope="module")
def tuned(tmp_path_factory):
    """A run that continues the training of nequip for a few steps, and its start's errors."""
    folder = tmp_path_factory.mktemp("tuned")
    frames = ase.io.read(ACAC / "train_300K.xyz", "100:112")
    ase.io.write(folder / "new.xyz", frames, format="extxyz")
    settings = PotentialConfig.model_validate(
        {
            "data": {"path": [folder / "new.xyz"], "validation": 0.25},
            "start": {"path": str(CHECKPOINT)},
            "training": {"steps": 20, "batch_size": 4, "progress": False},
        }
    )
    PotentialJob().validate(settings)
    run = RunDirectory.create(folder / "runs", "tuned", settings)
    PotentialJob().train(settings, run)
    return run


def test_fine_tuning_lowers_the_error_and_exports(tuned, tmp_path):
    rows = [r["value"] for r in tuned.read_metrics() if r["name"] == "validation/forces_mse"]
    assert rows[-1] < rows[0]
    model, config, _ = load_model(tuned.path)
    assert config.model.name == "nequip"
    assert config.model.species_scale
    start = read_nequip(CHECKPOINT)
    assert torch.equal(model.scale, start.scale)
    assert not torch.equal(model.embedding, start.embedding)
    atoms = ase.io.read(ACAC / "test_MD_300K.xyz", 0)
    export_library(model, config.model, tmp_path / "library")
    energies, forces = [], []
    for calculator in (Calculator(model, skin=0), LibraryCalculator(tmp_path / "library")):
        atoms.calc = calculator
        energies.append(atoms.get_potential_energy())
        forces.append(atoms.get_forces())
    assert energies[1] == pytest.approx(energies[0], abs=1e-10)
    assert np.abs(forces[1] - forces[0]).max() < 1e-9


def test_a_new_element_has_the_mean_scale():
    start = read_nequip(CHECKPOINT)
    model = start.config.build([*start.type_map, "N"])
    model.extend(start)
    assert model.scale.tolist() == [*start.scale.tolist(), float(start.scale.mean())]


def test_the_scale_of_each_species_is_the_force_on_its_atoms():
    config = NequipConfig(**{**NequipConfig.example, "species_scale": True})
    model = config.build(["O", "H", "C"])
    forces = torch.tensor([[3.0, 0, 0], [0, 1.0, 0], [0, 0, 2.0]], dtype=torch.float64)
    graph = {
        "types": torch.tensor([0, 1, 1]),
        "edge_index": torch.zeros(2, 3, dtype=torch.int64),
        "forces": forces,
        "energy": torch.zeros(1, dtype=torch.float64),
        "frame": torch.zeros(3, dtype=torch.int64),
    }
    model.fit_statistics([graph])
    whole = (14 / 9) ** 0.5
    assert model.scale.tolist() == pytest.approx([3**0.5, (5 / 6) ** 0.5, whole])
