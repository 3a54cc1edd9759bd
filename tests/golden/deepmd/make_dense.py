"""Write small deepmd-kit models of its numpy backend, and energies, forces and virials of a frame.

Run in deepmd-kit's environment: .venv-peers/deepmd/bin/python tests/golden/deepmd/make_dense.py

That backend has no derivatives: forces and virials are differences of sixth order of its energies.
Where deepmd-kit's TensorFlow backend takes the model too (parameters, hybrid, three_types,
exclude_two_side), its derivatives are kept instead.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
SEL = {"sel": [20, 40]}
NETS = {"neuron": [3, 6, 12], "precision": "float64", "rcut": 4.0, "rcut_smth": 1.0, "seed": 3}
TWO_BODY = {"type": "se_e2_a", "axis_neuron": 3, **SEL, **NETS}
ATTENTION = {
    "type": "se_atten",
    "axis_neuron": 3,
    "sel": 60,
    "attn": 5,
    "tebd_dim": 4,
    "set_davg_zero": True,
    "trainable_ln": True,
    "ln_eps": 1e-5,
    **NETS,
}
VARIANTS = {
    "exclude_one_side": {**TWO_BODY, "type_one_side": True, "exclude_types": [[0, 0]]},
    "exclude_two_side": {**TWO_BODY, "type_one_side": False, "exclude_types": [[0, 1]]},
    "exclude_radial": {
        "type": "se_e2_r",
        "type_one_side": True,
        "exclude_types": [[1, 1]],
        **SEL,
        **NETS,
    },
    "parameters": {**TWO_BODY, "type_one_side": True},
    "hybrid": {
        "type": "hybrid",
        "list": [
            {**TWO_BODY, "type_one_side": True},
            {"type": "se_e2_r", "type_one_side": True, **SEL, **NETS, "rcut": 3.0},
        ],
    },
    "three_types": {**TWO_BODY, "type_one_side": False, "sel": [20, 40, 7]},
    "atten_concat": {**ATTENTION, "attn_layer": 0, "type_one_side": False},
    "atten_strip": {
        **ATTENTION,
        "attn_layer": 0,
        "type_one_side": True,
        "tebd_input_mode": "strip",
        "smooth_type_embedding": True,
    },
    "atten_two_layers": {
        **ATTENTION,
        "attn_layer": 2,
        "attn_dotr": True,
        "normalize": True,
        "smooth_type_embedding": True,
        "type_one_side": False,
    },
    "atten_strip_layer": {
        **ATTENTION,
        "attn_layer": 1,
        "attn_dotr": True,
        "normalize": True,
        "smooth_type_embedding": True,
        "tebd_input_mode": "strip",
        "type_one_side": False,
        "exclude_types": [[0, 1]],
        "tebd_dim": 2,
    },
    "atten_plain": {
        **ATTENTION,
        "attn_layer": 1,
        "attn_dotr": False,
        "normalize": False,
        "smooth_type_embedding": False,
        "temperature": 0.7,
        "concat_output_tebd": False,
        "use_tebd_bias": True,
        "tebd_dim": 8,
    },
    "hybrid_atten": {
        "type": "hybrid",
        "list": [
            {**TWO_BODY, "type_one_side": True},
            {**ATTENTION, "attn_layer": 1, "smooth_type_embedding": True, "rcut": 3.5},
        ],
    },
}
HEADS = {
    "dipole": ({**TWO_BODY, "type_one_side": True}, {"type": "dipole"}),
    "polar_diagonal": (
        {**TWO_BODY, "type_one_side": True},
        {"type": "polar", "fit_diag": True, "scale": [1.5, 0.7]},
    ),
    "polar_full": (
        {**ATTENTION, "attn_layer": 1, "smooth_type_embedding": True},
        {"type": "polar", "fit_diag": False, "shift_diag": False},
    ),
    "dos": (VARIANTS["hybrid"], {"type": "dos", "numb_dos": 7}),
}
STEP, STRAIN = 2e-3, 5e-4  # Å, and without unit
EXACT = ("parameters", "hybrid", "three_types", "exclude_two_side")
STENCIL = {1: 3 / 4, 2: -3 / 20, 3: 1 / 60}


def build(name: str, descriptor: dict, fitting: dict | None = None):
    from deepmd.dpmodel.model.model import get_model

    given = {"numb_fparam": 2, "numb_aparam": 1} if name == "parameters" else {}
    model = get_model(
        {
            "type_map": ["O", "H", "Si"] if name == "three_types" else ["O", "H"],
            "descriptor": descriptor,
            "fitting_net": {
                "neuron": [6, 6],
                "resnet_dt": True,
                "precision": "float64",
                "seed": 4,
                **given,
                **(fitting or {}),
            },
        }
    )
    data = model.serialize()
    parts = data["descriptor"].get("list", [data["descriptor"]])
    rng = np.random.default_rng(5)
    for part in parts:
        mean, deviation = (part["@variables"][k] for k in ("davg", "dstd"))
        width = mean.shape[-1]
        for kind in range(len(mean)):
            if part["type"] != "dpa1":
                mean[kind, :, 0] = 0.05 + 0.03 * kind
            deviation[kind] = np.array([0.06, 0.05, 0.05, 0.05])[:width] + 0.02 * kind
        for layer in part.get("attention_layers", {}).get("attention_layers", []):
            norm = layer["attn_layer_norm"]["@variables"]
            for key in ("w", "b"):
                norm[key] = norm[key] + 0.3 * rng.normal(size=norm[key].shape)
    for network in data["fitting"]["nets"]["networks"]:
        for layer in network["layers"]:
            layer["@variables"]["w"] *= 2.0  # forces large enough to tell differences from noise
    variables = data["fitting"]["@variables"]
    count = len(variables["bias_atom_e"])
    if fitting is not None:
        for key in ("bias_atom_e", "constant_matrix"):
            if key in variables:
                variables[key] = 0.3 * rng.normal(size=variables[key].shape)
        added = data["@variables"]["out_bias"]
        data["@variables"]["out_bias"] = 0.2 * rng.normal(size=added.shape)
        return type(model).deserialize(data), data
    variables["bias_atom_e"] = np.array([[-0.3], [0.4], [0.1]])[:count]
    if given:
        variables["fparam_avg"], variables["fparam_inv_std"] = (
            np.array([0.3, -1]),
            np.array([2.0, 0.5]),
        )
        variables["aparam_avg"], variables["aparam_inv_std"] = np.array([0.1]), np.array([3.0])
    return type(model).deserialize(data), data


def derivatives(model, coord, box, kinds, given) -> tuple[float, np.ndarray, np.ndarray]:
    """Return energy, forces and virial (-dE/d(strain))."""
    atoms = len(coord)

    def energies(coords, boxes):
        frames, out = len(coords), []
        for start in range(0, frames, 64):
            part = slice(start, start + 64)
            n = len(coords[part])
            more = {k: np.repeat(v[None], n, 0) for k, v in given.items()}
            found = model.call(
                coords[part].reshape(n, -1),
                np.tile(kinds, (n, 1)),
                boxes[part].reshape(n, 9),
                **more,
            )
            out.append(np.ravel(found["energy"]))
        return np.concatenate(out)

    moves = [(k, sign) for k in STENCIL for sign in (1, -1)]
    weights = np.array([STENCIL[k] * sign for k, sign in moves])
    coords, boxes = [coord], [box]
    for atom, axis in np.ndindex(atoms, 3):
        for k, sign in moves:
            moved = coord.copy()
            moved[atom, axis] += sign * k * STEP
            coords.append(moved)
            boxes.append(box)
    for i, j in np.ndindex(3, 3):
        for k, sign in moves:
            strain = np.eye(3)
            strain[i, j] += sign * k * STRAIN
            coords.append(coord @ strain)
            boxes.append(box @ strain)
    found = energies(np.array(coords), np.array(boxes))
    slopes = found[1:].reshape(-1, len(moves)) @ weights
    forces, virial = -slopes[: 3 * atoms] / STEP, -slopes[3 * atoms :] / STRAIN
    return found[0], forces.reshape(atoms, 3), virial.reshape(3, 3)


def main() -> None:
    from deepmd.dpmodel.utils.serialization import save_dp_model
    from deepmd.entrypoints.convert_backend import convert_backend
    from deepmd.infer import DeepPot

    rng = np.random.default_rng(11)
    box = np.array([[6.1, 0.3, 0.0], [0.0, 4.9, 0.2], [0.4, 0.0, 5.0]])
    grid = np.array(list(np.ndindex(3, 2, 2)))[:11] / np.array([3, 2, 2])
    coord = (grid + 0.05 * rng.normal(size=grid.shape)) @ box
    kinds = np.array([0, 1, 1, 0, 1, 0, 1, 1, 0, 1, 1])
    parameters = {"fparam": np.array([0.7, 0.2]), "aparam": rng.normal(size=(len(kinds), 1))}
    out = {"coord": coord, "box": box, "type": kinds, **parameters}
    for name, descriptor in VARIANTS.items():
        model, data = build(name, descriptor)
        save_dp_model(
            str(HERE / f"{name}.dp"), {"model": data, "backend": "dpmodel", "model_def_script": {}}
        )
        given = parameters if name == "parameters" else {}
        energy, force, virial = derivatives(model, coord, box, kinds, given)
        if name in EXACT:
            graph = str(HERE / f"{name}.pb")
            convert_backend(INPUT=str(HERE / f"{name}.dp"), OUTPUT=graph)
            found = DeepPot(graph).eval(coord.reshape(1, -1), box.reshape(1, 9), kinds, **given)
            Path(graph).unlink()
            scale = np.abs(found[1]).max()
            assert np.abs(found[0] - energy).max() < 1e-12
            print("differences are off by", np.abs(found[1][0] - force).max() / scale)
            force, virial = found[1][0], found[2].reshape(3, 3)
        out |= {f"{name}_energy": energy, f"{name}_force": force, f"{name}_virial": virial}
        print(name, energy, np.abs(force).max(), np.abs(virial).max())
    for name, (descriptor, fitting) in HEADS.items():
        model, data = build(name, descriptor, fitting)
        save_dp_model(
            str(HERE / f"{name}.dp"), {"model": data, "backend": "dpmodel", "model_def_script": {}}
        )
        found = model.call(coord.reshape(1, -1), kinds[None], box.reshape(1, 9))
        atomic, total = {"dos": ("atom_dos", "dos"), "dipole": ("dipole", "global_dipole")}.get(
            name, ("polar", "global_polar")
        )
        out |= {f"{name}_atomic": found[atomic][0], f"{name}_total": found[total][0]}
    np.savez(HERE / "expected_dense.npz", **out)


if __name__ == "__main__":
    main()
