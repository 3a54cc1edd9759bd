"""Train DPA-1 for a few steps in deepmd-kit's TensorFlow backend, convert it, and evaluate a frame.

Its attention is another than that of the other backends, whose settings its files have. Run in
deepmd-kit's environment: .venv-peers/deepmd/bin/python tests/golden/deepmd/make_tensorflow.py
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
DATA = HERE.parents[2] / "datasets" / "water_deepmd"
MODEL = HERE / "atten_tensorflow.dp"
ATTENTION = {
    "type": "se_atten",
    "sel": 60,
    "rcut": 4.0,
    "rcut_smth": 1.0,
    "neuron": [4, 8],
    "axis_neuron": 3,
    "attn": 5,
    "attn_layer": 2,
    "attn_dotr": True,
    "precision": "float64",
    "seed": 1,
    "resnet_dt": False,
    "set_davg_zero": True,
    "smooth_type_embedding": False,
    "type_one_side": False,
}
SETTINGS = {
    "model": {
        "type_map": ["O", "H"],
        "descriptor": ATTENTION,
        "type_embedding": {"neuron": [4], "precision": "float64", "seed": 1},
        "fitting_net": {"neuron": [8, 8], "precision": "float64", "seed": 1},
    },
    "learning_rate": {"type": "exp", "decay_steps": 50, "start_lr": 1e-2, "stop_lr": 1e-4},
    "loss": {
        "type": "ener",
        "start_pref_e": 0.02,
        "limit_pref_e": 1,
        "start_pref_f": 1000,
        "limit_pref_f": 1,
    },
    "training": {
        "training_data": {"systems": [str(DATA / "data_0")], "batch_size": 1},
        "numb_steps": 20,
        "seed": 10,
        "disp_freq": 10,
        "save_freq": 20,
    },
}


def main() -> None:
    import h5py
    from deepmd.entrypoints.convert_backend import convert_backend
    from deepmd.infer import DeepPot

    # deepmd-kit 3.2.0 hands json a number of numpy's, which it refuses.
    json.JSONEncoder.default = lambda self, value: int(value)
    coord = np.load(DATA / "data_3/set.000/coord.npy")[0].astype(float)
    box = np.load(DATA / "data_3/set.000/box.npy")[0].astype(float)
    kinds = np.loadtxt(DATA / "data_3/type.raw", dtype=int)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "input.json").write_text(json.dumps(SETTINGS))
        dp = str(Path(sys.executable).with_name("dp"))
        subprocess.run([dp, "train", "input.json"], cwd=folder, check=True)
        subprocess.run([dp, "freeze", "-o", "graph.pb"], cwd=folder, check=True)
        graph = str(folder / "graph.pb")
        convert_backend(INPUT=graph, OUTPUT=str(MODEL))
        energy, force, virial = DeepPot(graph).eval(coord.reshape(1, -1), box.reshape(1, 9), kinds)
    with h5py.File(MODEL, "r+") as file:  # the input has paths of the machine
        tree = json.loads(file.attrs["json"])
        file.attrs["json"] = json.dumps({**tree, "model_def_script": {}})
    print(energy, np.abs(force).max(), np.abs(virial).max())
    np.savez(
        HERE / "expected_tensorflow.npz",
        coord=coord.reshape(-1, 3),
        box=box.reshape(3, 3),
        type=kinds,
        energy=energy,
        force=force[0],
        virial=virial.reshape(3, 3),
    )


if __name__ == "__main__":
    main()
