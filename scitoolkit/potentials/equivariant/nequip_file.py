"""Checkpoints of `nequip-train`: settings of the model, and the weights that nequip evaluates."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from scitoolkit.core.errors import DataError
from scitoolkit.core.suggest import nearest_name
from scitoolkit.potentials.consumed import load_tensors

OLDEST, NEWEST = (0, 17), (0, 19)  # versions of nequip with these settings and this arithmetic
PREFIX = "model.sole_model.model.func."
BUILDERS = ("NequIPGNNModel", "PresetNequIPGNNModel")
MODULES = (
    "NequIPLightningModule",
    "EMALightningModule",
    "ConFIGLightningModule",
    "EMAConFIGLightningModule",
)
KERNELS = ("enable_OpenEquivariance", "enable_CuEquivariance")  # faster, with equal energies
DEFAULTS: dict[str, Any] = {
    "num_layers": 4,
    "l_max": 1,
    "parity": True,
    "num_features": 32,
    "type_embed_num_features": None,
    "radial_mlp_depth": 1,
    "radial_mlp_width": 128,
    "num_bessels": 8,
    "polynomial_cutoff_p": 6,
    "pair_potential": None,
}
PRESET = {
    "parity": False,
    "type_embed_num_features": 32,
    "radial_mlp_depth": 1,
    "radial_mlp_width": 128,
}
PRESETS: dict[str, tuple[int, int, list[int]]] = {  # num_layers, l_max, num_features
    "S": (2, 1, [128, 64]),
    "M": (4, 2, [128, 64, 32]),
    "L": (6, 3, [128, 64, 32, 32]),
    "XL": (6, 4, [320, 96, 64, 32, 32]),
}
NONLINEARITIES = {"e": "silu", "o": "tanh"}
ONLY: dict[str, Any] = {  # options with one supported value, nequip's default
    "per_edge_type_cutoff": None,
    "categorical_graph_field_embed": None,
    "readout_mlp_hidden_layers_depth": 0,
    "convnet_sc": True,
    "learnable_shift": False,
    "convnet_resnet": False,
    "convnet_nonlinearity_type": "gate",
    "convnet_nonlinearity_scalars": NONLINEARITIES,
    "convnet_nonlinearity_gates": NONLINEARITIES,
}
TRAINED = {  # option: the tensor that is a parameter if it is true
    "bessel_trainable": "bessel_encode.bessel_weights",
    "per_type_energy_scales_trainable": "per_type_energy_scale_shift.scales",
    "per_type_energy_shifts_trainable": "per_type_energy_scale_shift.shifts",
}
READ = {*DEFAULTS, *TRAINED, "r_max", "type_names", "avg_num_neighbors", "model_dtype"}
UNUSED = {  # values that the tensors have, or that do not change energies
    *("_target_", "seed", "compile_mode", "do_derivatives", "preset"),
    *("per_type_energy_scales", "per_type_energy_shifts"),
    *("readout_mlp_hidden_layers_width", "readout_mlp_nonlinearity"),
}
CHECKPOINT = "best.ckpt or last.ckpt in the output folder of nequip-train"


@dataclass(frozen=True)
class NequipCheckpoint:
    """A model of nequip.

    Attributes:
        settings: options of `NequIPGNNModel`, all of `READ`.
        state: tensors by their names in the energy model.
        where: file, for messages.
    """

    settings: dict[str, Any]
    state: dict[str, Tensor]
    where: str


def open_nequip(path: Path | str, started: Sequence[str] = ()) -> NequipCheckpoint:
    """Return the model of a checkpoint; pickled code is never executed.

    The weights are those that nequip evaluates: the moving average (EMA) where there is one.

    Args:
        path: `.ckpt` file.
        started: checkpoints whose trainings start, one from the next, from this one.

    Raises:
        DataError: not a checkpoint of nequip-train, or a model with an option that the network
            here does not have.
    """
    where = str(path)
    if where in started:
        raise DataError("the training of this checkpoint starts from itself", where=where)
    checkpoint = _load(Path(path))
    try:
        hyper = checkpoint["hyper_parameters"]
        _check_training(checkpoint, hyper["info_dict"], where)
        settings = _settings(hyper["model"], [*started, where])
        held = checkpoint["state_dict"]
        state = {
            name.removeprefix(PREFIX): value
            for name, value in held.items()
            if name.startswith(PREFIX) and isinstance(value, Tensor)
        }
        _take_average(state, held, settings, where)
    # RecursionError: a configuration inside itself
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise DataError(
            f"damaged or of another program ({type(error).__name__}: {error})",
            where=where,
            allowed="a checkpoint of nequip-train",
            fix=CHECKPOINT,
        ) from None
    return NequipCheckpoint(settings, state, where)


def _load(path: Path) -> dict[str, Any]:
    where = str(path)
    held = load_tensors(path, CHECKPOINT)
    if not isinstance(held, dict) or not {"hyper_parameters", "state_dict"} <= held.keys():
        raise DataError("not a checkpoint of nequip-train", where=where, fix=CHECKPOINT)
    return held


def _check_training(checkpoint: Mapping[str, Any], info: Mapping[str, Any], where: str) -> None:
    version = str(info["versions"]["nequip"])
    numbers = tuple(int(part) for part in re.findall(r"\d+", version)[:2])
    if not OLDEST <= numbers <= NEWEST:
        raise DataError(
            f"a checkpoint of nequip {version}, whose models may differ",
            where=where,
            allowed="nequip 0.17 to 0.19",
            fix="pip install nequip==0.19.1, and train with it",
        )
    target = str(info["training_module"]["_target_"])
    module = target.rpartition(".")[2]
    if module not in MODULES or "schedulefree_optimizer_state_dict" in checkpoint:
        raise DataError(
            f"training_module is {target}, whose weights for evaluation are not in the state dict",
            where=where,
            allowed=", ".join(MODULES),
            fix="training_module: {_target_: nequip.train.EMALightningModule}, and train again",
        )


def _settings(model: Mapping[str, Any], started: Sequence[str]) -> dict[str, Any]:
    """Return the settings of a model, with defaults.

    Args:
        model: configuration of it.
        started: as in `open_nequip`, the file itself at the end.

    Raises:
        DataError: an option is unknown, or has a value that is not supported.
    """
    where = started[-1]
    builder = str(model["_target_"]).rpartition(".")[2]
    if builder == "modify":
        for row in model["modifiers"]:
            if row["modifier"] not in KERNELS:
                raise unsupported("modifiers", row["modifier"], ", ".join(KERNELS), where)
        return _settings(model["model"], started)
    if builder == "ModelFromCheckpoint":  # a fine-tuning by nequip, with the model of its start
        return open_nequip(str(model["checkpoint_path"]), started).settings
    if builder not in BUILDERS:
        raise unsupported("_target_", model["_target_"], ", ".join(BUILDERS), where)
    defaults = DEFAULTS | dict.fromkeys(TRAINED, False)
    if builder == BUILDERS[1]:
        layers, lmax, features = PRESETS[model["preset"].upper()]
        defaults |= {**PRESET, "num_layers": layers, "l_max": lmax, "num_features": features}
    settings = defaults | dict(model)
    for key, value in settings.items():
        if key in ONLY and value != ONLY[key]:
            raise unsupported(key, value, repr(ONLY[key]), where)
        if key not in ONLY and key not in READ | UNUSED:
            near = nearest_name(key, sorted(READ | UNUSED | ONLY.keys()))
            raise unsupported(key, value, f"no such option (near: {near})", where)
    if isinstance(settings["num_features"], int):
        settings["num_features"] = [settings["num_features"]] * (settings["l_max"] + 1)
    if len(settings["num_features"]) != settings["l_max"] + 1:
        raise ValueError(f"num_features {settings['num_features']}, l_max {settings['l_max']}")
    if settings["type_embed_num_features"] is None:
        settings["type_embed_num_features"] = settings["num_features"][0]
    return {key: settings[key] for key in READ}


def unsupported(key: str, value: object, allowed: str, where: str) -> DataError:
    """Return the error of an option of nequip's model."""
    return DataError(
        f"training_module.model.{key} is {value!r}, which the nequip network here does not have",
        where=where,
        allowed=allowed,
        fix=f"train with an allowed {key}, or use the model in nequip",
    )


def _take_average(
    state: dict[str, Tensor], held: Mapping[str, Any], settings: Mapping[str, Any], where: str
) -> None:
    """Replace the parameters by their moving averages, which are numbered in their order."""
    averages = [value for name, value in held.items() if name.startswith("ema.ema_weight_")]
    if not averages:
        return
    if not held["ema._extra_state"]["is_holding_ema_weights"]:
        raise DataError(
            "saved during a validation, when nequip exchanges weights and their averages",
            where=where,
            fix=CHECKPOINT,
        )
    buffers = {name for option, name in TRAINED.items() if not settings[option]}
    names = [
        name
        for name, value in state.items()
        if value.numel()
        and name not in buffers
        and not re.search(r"output_mask$|_w3j_|\._|^pair_potential\.", name)
    ]
    shapes = [state[name].shape for name in names]
    if [value.shape for value in averages] != shapes:
        raise DataError(
            f"{len(averages)} moving averages (ema_weight) for {len(names)} other parameters",
            where=where,
            fix="train with nequip.train.NequIPLightningModule",
        )
    state.update(zip(names, averages, strict=True))
