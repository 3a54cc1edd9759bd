"""Models of mace-torch over its options: equal energies, or refused by name."""

import json
import os
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from scitoolkit.core.errors import DataError
from scitoolkit.io.atoms import Configuration
from scitoolkit.potentials import read_mace
from scitoolkit.potentials.graph import configuration_graph
from scitoolkit.potentials.peers.convert_mace import FORMAT, convert

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden" / "mace_options.npz"
MAKER = ROOT / "tests" / "golden" / "make_mace_options.py"
PEER = ROOT / ".venv-peers" / "mace" / "bin" / "python"
CASES = sorted({name.split("/")[0] for name in np.load(GOLDEN).files if "/" in name})


def _case(arrays, name):
    prefix = f"{name}/state/"
    state = {
        key.removeprefix(prefix): torch.from_numpy(arrays[key])
        for key in arrays.files
        if key.startswith(prefix)
    }
    return json.loads(str(arrays[f"{name}/settings"])), state


def _converted(arrays, name, folder):
    settings, state = _case(arrays, name)
    path = folder / "mace.pt"
    torch.save({"format": FORMAT, "settings": settings, "state": state}, path)
    return path, settings


def _check(arrays, name, folder):
    path, settings = _converted(arrays, name, folder)
    frame = Configuration(
        arrays["species"], arrays["positions"], arrays["cell"], np.ones(3, dtype=bool)
    )
    for number, head in enumerate(settings["heads"]):
        model = read_mace(path, head=head, precision="float64")
        found = model(configuration_graph(frame, model.type_map, model.cutoff))
        wanted = {
            key.split("/")[2]: arrays[key]
            for key in arrays.files
            if key.startswith(f"{name}/{number}/")
        }
        assert "energy" in wanted
        for key, value in wanted.items():
            ours = found["virial" if key == "virials" else key].detach().numpy()
            assert np.abs(ours - value).max() <= 1e-10 * np.abs(value).max(), (name, head, key)


@pytest.mark.parametrize("name", CASES)
def test_equals_mace_torch(name, tmp_path):
    _check(np.load(GOLDEN), name, tmp_path)


@pytest.mark.skipif(not PEER.exists(), reason="no .venv-peers/mace: make peers")
@pytest.mark.slow
def test_random_models_of_the_product_of_options(tmp_path):
    """Built by mace-torch in its own environment, with a seed of the day."""
    target, seed = tmp_path / "cases.npz", os.environ.get("SCITOOLKIT_TEST_SEED", "7")
    environment = {**os.environ, "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1", "OMP_NUM_THREADS": "1"}
    subprocess.run(
        [PEER, "-W", "ignore", MAKER, target, seed],
        check=True,
        capture_output=True,
        env=environment,
    )
    arrays = np.load(target)
    names = sorted({name.split("/")[0] for name in arrays.files if "/" in name})
    assert len(names) >= 12
    for name in names:
        _check(arrays, name, tmp_path)
    model = target.with_suffix(".model")
    with pytest.raises(DataError, match="pickled code"):
        read_mace(model)
    converter = ROOT / "scitoolkit" / "potentials" / "peers" / "convert_mace.py"
    subprocess.run(
        [PEER, "-W", "ignore", converter, model, tmp_path / "out.pt"],
        check=True,
        capture_output=True,
        env=environment,
    )
    head = json.loads(str(arrays[f"{names[0]}/settings"]))["heads"][-1]
    assert read_mace(tmp_path / "out.pt", head=head).cutoff == 3.0


@pytest.mark.parametrize("extra", ["interactions.0.unknown.weight", "new_option"])
def test_a_key_that_is_not_read_is_refused(extra, tmp_path):
    path, _ = _converted(np.load(GOLDEN), "foundation", tmp_path)
    held = torch.load(path)
    held["state"][extra] = torch.ones(3)
    torch.save(held, path)
    with pytest.raises(DataError, match=extra):
        read_mace(path)


def test_every_key_of_a_state_dict_matters(tmp_path):
    """Without any one of the keys the model is refused; none is passed over."""
    settings, state = _case(np.load(GOLDEN), "foundation")
    structural = (".output_mask", "_zeroed", ".bias", "conv_tp.weight")
    for key in state:
        if key.endswith(structural) or "_w3j_" in key:
            continue
        held = {name: value for name, value in state.items() if name != key}
        torch.save({"format": FORMAT, "settings": settings, "state": held}, tmp_path / "m.pt")
        with pytest.raises(DataError):
            read_mace(tmp_path / "m.pt")


@pytest.mark.parametrize(
    ("setting", "value", "named"),
    [
        ("interactions", ["RealAgnosticAttResidualInteractionBlock"] * 2, "AttResidual"),
        ("model", "PolarMACE", "PolarMACE"),
        ("readouts", ["LinearReadoutBlock", "NonLinearBiasReadoutBlock"], "NonLinearBias"),
        ("gate", "gelu", "gelu"),
        ("use_so3", True, "use_so3"),
        ("average_neighbours", [7.5, 8.0], "avg_num_neighbors"),
    ],
)
def test_settings_that_are_not_built_are_refused_by_name(setting, value, named, tmp_path):
    settings, state = _case(np.load(GOLDEN), "density")
    held = {"format": FORMAT, "settings": {**settings, setting: value}, "state": state}
    torch.save(held, tmp_path / "m.pt")
    with pytest.raises(DataError, match=named):
        read_mace(tmp_path / "m.pt")


def test_a_state_dict_needs_the_settings_that_it_does_not_hold():
    _, state = _case(np.load(GOLDEN), "agnesi")
    given = {"average_neighbours": 7.5, "gate": "silu", "apply_cutoff": True}
    assert read_mace(state, **given).config.distance_transform == "agnesi"
    for missing in given:
        with pytest.raises(DataError, match=missing):
            read_mace(state, **{k: v for k, v in given.items() if k != missing})


def test_one_of_several_heads_must_be_chosen(tmp_path):
    path, _ = _converted(np.load(GOLDEN), "heads", tmp_path)
    with pytest.raises(DataError, match=r"2 heads.*first, second"):
        read_mace(path)
    with pytest.raises(DataError, match=r"secnd.*'second'"):
        read_mace(path, head="secnd")


def test_a_model_that_was_read_is_saved_and_opened(tmp_path):
    from scitoolkit.potentials import PotentialConfig, load_model
    from scitoolkit.potentials.saved import save_model

    path, _ = _converted(np.load(GOLDEN), "foundation", tmp_path)
    model = read_mace(path, precision="float64")
    config = PotentialConfig(
        workflow="w", data={"path": ["a.xyz"]}, model=model.config, type_map=list(model.type_map)
    )
    save_model(model, config, tmp_path / "saved")
    again = load_model(tmp_path / "saved")[0]
    for name, value in model.state_dict().items():
        assert torch.equal(value, again.state_dict()[name])


def test_no_code_of_a_model_file_runs(tmp_path):
    class Trap:
        def __reduce__(self):
            return (Path.touch, (tmp_path / "ran",))

    torch.save(Trap(), tmp_path / "trap.model")
    with pytest.raises(DataError, match="convert_mace"):
        read_mace(tmp_path / "trap.model")
    assert not (tmp_path / "ran").exists()


def test_other_files_of_a_training_are_named(tmp_path):
    """mace_run_train leaves NAME_compiled.model and checkpoints beside NAME.model."""
    compiled, checkpoint = tmp_path / "small_compiled.model", tmp_path / "small_epoch-2.pt"
    with warnings.catch_warnings(action="ignore"):  # torch deprecates what mace-torch writes
        torch.jit.script(torch.nn.Linear(2, 1)).save(str(compiled))
    torch.save({"model": {}, "optimizer": {}}, checkpoint)
    for path, said in ((compiled, "compiled model"), (checkpoint, "contains a dict")):
        with pytest.raises(ValueError, match=said):
            convert(str(path), str(tmp_path / "mace.pt"))
    assert not (tmp_path / "mace.pt").exists()
