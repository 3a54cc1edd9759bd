"""Weights for mace-torch: read back unchanged, and equal in its own environment."""

import json
import os
import subprocess
from pathlib import Path

import ase
import numpy as np
import pytest
import torch
from ase.io import write

from scitoolkit.core.errors import DataError
from scitoolkit.io.atoms import Configuration
from scitoolkit.potentials import Calculator, MaceConfig, read_mace, write_mace
from scitoolkit.potentials.graph import configuration_graph
from scitoolkit.potentials.peers.convert_mace import FORMAT, restored_state

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden" / "mace_options.npz"
PEER = ROOT / ".venv-peers" / "mace" / "bin" / "python"
CONVERTER = ROOT / "scitoolkit" / "potentials" / "peers" / "convert_mace.py"
SMALL = {
    "cutoff": 3.5,
    "channels": 4,
    "lmax": 2,
    "correlation": 3,
    "radial_widths": [8],
    "precision": "float64",
}
EVALUATE = """
import json, sys
from ase.io import read
from mace.calculators import MACECalculator
atoms = read(sys.argv[2])
atoms.calc = MACECalculator(model_paths=sys.argv[1], device="cpu", default_dtype="float64")
values = [atoms.get_potential_energy(), atoms.get_forces().tolist(), atoms.get_stress().tolist()]
print("VALUES" + json.dumps(values))
"""


def system():
    rng = np.random.default_rng(0)
    grid = np.stack(np.meshgrid(*[np.arange(2)] * 3, indexing="ij"), -1).reshape(-1, 3)
    x = (grid + 0.5 + rng.uniform(-0.2, 0.2, grid.shape)) * 2.1
    return ase.Atoms("OHCHOHHC", x, cell=4.2 * np.eye(3), pbc=True)


@pytest.mark.parametrize("name", ["foundation", "density", "three layers", "cutoff later"])
def test_what_was_read_is_written_back_unchanged(name, tmp_path):
    """Weights of mace-torch, read, written, and put into its state dict with none of them."""
    arrays = np.load(GOLDEN)
    prefix = f"{name}/state/"
    state = {
        key.removeprefix(prefix): torch.from_numpy(arrays[key])
        for key in arrays.files
        if key.startswith(prefix)
    }
    held = {"format": FORMAT, "settings": json.loads(str(arrays[f"{name}/settings"]))}
    torch.save({**held, "state": state}, tmp_path / "in.pt")
    model = read_mace(tmp_path / "in.pt", precision="float64")
    written = torch.load(write_mace(model, tmp_path / "out.pt"))
    filled = {name for name in written["weights"]} | {each[0] for each in written["products"]}
    empty = {k: torch.full_like(v, torch.nan) if k in filled else v for k, v in state.items()}
    restored = restored_state(empty, written)
    for key in filled - {each[0] for each in written["products"]}:
        assert torch.equal(restored[key], state[key]), key
    # Products are linearly dependent, so that their weights may differ: the energies do not.
    torch.save({**held, "state": restored}, tmp_path / "again.pt")
    again = read_mace(tmp_path / "again.pt", precision="float64")
    frame = Configuration(
        arrays["species"], arrays["positions"], arrays["cell"], np.ones(3, dtype=bool)
    )
    graph = configuration_graph(frame, model.type_map, model.cutoff)
    wanted, found = model(graph), again(graph)
    for key, value in wanted.items():
        assert (found[key] - value).abs().max() <= 1e-11 * value.abs().max()


def test_repulsion_that_mace_torch_has_not_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"does not support model\.zbl"):
        write_mace(MaceConfig(**SMALL, zbl={}).build(["O", "H"]), tmp_path / "out.pt")


@pytest.mark.slow
@pytest.mark.skipif(not PEER.exists(), reason="no .venv-peers/mace: make peers")
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {
            "first_residual": False,
            "pair_repulsion": True,
            "distance_transform": "agnesi",
            "gate": "tanh",
        },
        {"first_density": True, "density": True, "layers": 1},
    ],
)
def test_opens_in_mace_torch_with_equal_energies(settings, tmp_path):
    model = MaceConfig(**SMALL, **settings).build(["O", "H", "C"]).eval()
    with torch.no_grad():
        model.shift.copy_(torch.tensor([-3.0, -1.0, -2.0]))
        model.scale.fill_(1.7)
        model.average_neighbours.fill_(12.0)
    atoms = system()
    write(tmp_path / "atoms.xyz", atoms)
    write_mace(model, tmp_path / "out.pt")
    environment = {**os.environ, "TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD": "1", "OMP_NUM_THREADS": "1"}
    back = [PEER, "-W", "ignore", CONVERTER, "--back", tmp_path / "out.pt", tmp_path / "m.model"]
    evaluate = [PEER, "-W", "ignore", "-c", EVALUATE, tmp_path / "m.model", tmp_path / "atoms.xyz"]
    for command in (back, evaluate):
        done = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr[-600:]
    theirs = json.loads(done.stdout.split("VALUES")[1])
    atoms = ase.io.read(tmp_path / "atoms.xyz")
    atoms.calc = Calculator(model, skin=0)
    ours = (atoms.get_potential_energy(), atoms.get_forces(), atoms.get_stress())
    for one, other in zip(ours, theirs, strict=True):
        assert np.abs(one - np.array(other)).max() <= 1e-9 * np.abs(other).max()
