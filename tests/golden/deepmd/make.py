"""Write small deepmd-kit models and what deepmd-kit says of a frame.

Run in deepmd-kit's environment: .venv-peers/deepmd/bin/python tests/golden/deepmd/make.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
VARIANTS = {
    "one_side": {"type": "se_e2_a", "type_one_side": True, "axis_neuron": 4},
    "two_side": {"type": "se_e2_a", "type_one_side": False, "axis_neuron": 3},
    "radial": {"type": "se_e2_r", "type_one_side": True},
}


def main() -> None:
    from deepmd.dpmodel.model.model import get_model
    from deepmd.dpmodel.utils.serialization import save_dp_model
    from deepmd.entrypoints.convert_backend import convert_backend
    from deepmd.infer import DeepPot

    rng = np.random.default_rng(7)
    box = np.array([[7.0, 0.3, 0.0], [0.0, 6.5, 0.2], [0.4, 0.0, 7.2]])
    coord = rng.uniform(0, 1, (14, 3)) @ box
    kinds = np.array([0] * 5 + [1] * 9)
    out = {"coord": coord, "box": box, "type": kinds}
    for name, descriptor in VARIANTS.items():
        model = get_model(
            {
                "type_map": ["O", "H"],
                "descriptor": {
                    "sel": [20, 40],
                    "rcut": 4.0,
                    "rcut_smth": 1.0,
                    "neuron": [5, 10, 20],
                    "precision": "float64",
                    "seed": 3,
                    **descriptor,
                },
                "fitting_net": {
                    "neuron": [12, 12],
                    "resnet_dt": True,
                    "precision": "float64",
                    "seed": 4,
                },
            }
        )
        data = model.serialize()
        variables = data["descriptor"]["@variables"]
        width = variables["davg"].shape[-1]
        for kind in range(2):
            variables["davg"][kind, :, 0] = 0.05 + 0.03 * kind
            variables["dstd"][kind] = np.array([0.2, 0.15, 0.15, 0.15])[:width] + 0.05 * kind
        data["fitting"]["@variables"]["bias_atom_e"] = np.array([[-3.0], [-1.5]])
        for network in data["fitting"]["nets"]["networks"]:
            # deepmd-kit's TensorFlow backend, which has forces, knows no step in a first layer.
            network["layers"][0]["@variables"]["idt"] = None
            network["layers"][0]["use_timestep"] = False
        path, graph = HERE / f"{name}.dp", str(HERE / f"{name}.pb")
        save_dp_model(str(path), {"model": data, "backend": "dpmodel", "model_def_script": {}})
        convert_backend(INPUT=str(path), OUTPUT=graph)
        evaluate = DeepPot(graph).eval
        energy, force, virial = evaluate(coord.reshape(1, -1), box.reshape(1, 9), kinds)
        Path(graph).unlink()
        out |= {f"{name}_energy": energy, f"{name}_force": force[0], f"{name}_virial": virial[0]}
    np.savez(HERE / "expected.npz", **out)


if __name__ == "__main__":
    main()
