"""Translation of a configuration file of `mace_run_train` to one of this package.

Every key is translated, known to have no effect here, or refused by name. Two settings differ:
Adam has no amsgrad, and `weight_decay` applies to all weights instead of those of the products and
of the linear layers of the interactions.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from scitoolkit.core.config import ConfigProblems, Problem, resolve_path
from scitoolkit.io.atoms import open_atoms
from scitoolkit.potentials.deepmd.input_section import Section

WITHOUT_EFFECT = """
    amsgrad avg_num_neighbors charges_key checkpoints_dir compute_stress dipole_key downloads_dir
    elec_temp_key enable_cueq enable_oeq error_table head_key huber_delta keep_checkpoints
    keep_isolated_atoms launcher log_dir log_level lr_scheduler_gamma model_dir name num_workers
    only_cueq pin_memory plot plot_frequency plot_interaction_e polarizability_key results_dir
    save_all_checkpoints save_cpu stress_key stress_weight total_charge_key total_spin_key
    valid_batch_size virials_key virials_weight wandb wandb_dir wandb_entity wandb_log_hypers
    wandb_name wandb_project work_dir
""".split()
"""Keys of files, logs and engines, and of parts that another key, which is refused, switches on."""
SWITCHES = (
    *("distributed", "swa", "stage_two", "lbfgs", "restart_latest", "dry_run", "use_so3"),
    *("use_reduced_cg", "use_agnostic_product", "use_last_readout_only", "use_embedding_readout"),
    *("compute_polarizability", "compute_atomic_dipole", "multi_processed_test"),
)
BLOCKS = {
    "RealAgnosticInteractionBlock": (False, False),
    "RealAgnosticResidualInteractionBlock": (True, False),
    "RealAgnosticDensityInteractionBlock": (False, True),
    "RealAgnosticDensityResidualInteractionBlock": (True, True),
}
"""Whether an interaction has a residual connection, and a learned density."""


def translate(raw: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the raw configuration for a file of `mace_run_train`, or None if `raw` is not one.

    Raises:
        ConfigProblems: lists all keys that are not supported.
        DataError: the training file cannot be read.

    Example:
        >>> translate({"domain": "potentials"}) is None
        True
    """
    if not ("name" in raw and {"train_file", "heads"} & raw.keys()):
        return None
    problems: list[Problem] = []
    keys = Section("", raw, problems)
    for key in WITHOUT_EFFECT:
        keys.get(key)
    for key in SWITCHES:
        keys.only(key, False)
    # Defaults that a file may state.
    keys.only("compute_forces", True)
    keys.only("compute_avg_num_neighbors", True)
    keys.only("eval_interval", 1)
    if "train_file" not in raw:
        keys.refuse("train_file", "missing; heads are those of `start` in a fine-tuning")
    out = {
        "domain": "potentials",
        "seed": keys.get("seed", 123),
        "data": _data(keys),
        "model": _model(keys),
        "e0": _energies(keys),
        "training": _training(keys),
    }
    share = keys.get("valid_fraction", 0.1)
    if "validation" not in out["data"]:
        out["split"] = {"validation": share}
    loss = keys.get("loss", "weighted"), keys.get("energy_weight", 1.0), keys.get("forces_weight")
    if loss[0] not in ("weighted", "ef"):
        keys.refuse("loss", f"{loss[0]!r} is not supported; allowed: weighted, ef")
    keys.close()
    if problems:
        raise ConfigProblems(problems)
    out["loss"] = _loss(out["data"]["path"], loss[1], 100.0 if loss[2] is None else loss[2])
    return out


def _data(keys: Section) -> dict[str, Any]:
    files = {"path": "train_file", "validation": "valid_file", "test": "test_file"}
    data: dict[str, Any] = {
        ours: [value] for ours, theirs in files.items() if (value := keys.get(theirs))
    }
    data["labels"] = {
        name: keys.get(name, f"REF_{name.removesuffix('_key')}")
        for name in ("energy_key", "forces_key")
    }
    weights = _literal(keys, "config_type_weights", {})
    if weights.pop("Default", 1.0) != 1.0:
        keys.refuse("config_type_weights", "a weight of Default other than 1 is not supported")
    return {"path": [], **data, "weights": {"config_types": weights}}


def _model(keys: Section) -> dict[str, Any]:
    keys.only("model", "MACE", "ScaleShiftMACE")
    keys.only("scaling", "rms_forces_scaling")
    residual = "RealAgnosticResidualInteractionBlock"
    first = keys.get("interaction_first", residual)
    if keys.get("model", "MACE") == "MACE":
        first = first.replace("Residual", "")  # as mace-torch builds it, whatever the key says
    blocks = {"first_": first, "": keys.get("interaction", residual)}
    settings: dict[str, Any] = {}
    for prefix, block in blocks.items():
        if block not in BLOCKS:
            keys.refuse("interaction_first" if prefix else "interaction", f"{block} not supported")
        has_residual, has_density = BLOCKS.get(block, (True, False))
        settings |= {f"{prefix}residual": has_residual, f"{prefix}density": has_density}
    channels, degree = _irreps(keys)
    readout = re.fullmatch(r"\s*(\d+)x0e\s*", str(keys.get("MLP_irreps", "16x0e")))
    if readout is None:
        keys.refuse("MLP_irreps", "not supported; allowed: 16x0e and other numbers of scalars")
    return {
        "name": "mace",
        "cutoff": keys.get("r_max", 5.0),
        "channels": channels,
        "lmax": keys.get("max_ell", 3),
        "lmax_hidden": degree,
        "correlation": keys.get("correlation", 3),
        "layers": keys.get("num_interactions", 2),
        "num_basis": keys.get("num_radial_basis", 8),
        "envelope": keys.get("num_cutoff_basis", 5),
        "radial_widths": _literal(keys, "radial_MLP", [64, 64, 64]),
        "readout_width": int(readout[1]) if readout else 16,
        "radial_type": keys.get("radial_type", "bessel"),
        "distance_transform": str(keys.get("distance_transform", "None")).lower(),
        "apply_cutoff": keys.get("apply_cutoff", True),
        "gate": str(keys.get("gate", "silu")).lower(),
        "pair_repulsion": keys.get("pair_repulsion", False),
        "precision": keys.get("default_dtype", "float64"),
        **settings,
    }


def _irreps(keys: Section) -> tuple[int, int]:
    """Return channels and largest degree of the features; num_channels and max_L come first."""
    channels, degree = keys.get("num_channels"), keys.get("max_L")
    text = str(keys.get("hidden_irreps") or "128x0e + 128x1o")
    if channels is not None and degree is not None:
        return channels, degree
    if (channels, degree) != (None, None):
        keys.refuse("num_channels", "num_channels and max_L are set together")
    parts = [re.fullmatch(r"(\d+)x(\d)([eo])", part.strip()) for part in text.split("+")]
    allowed = [(str(number), "eo"[number % 2]) for number in range(len(parts))]
    if not all(parts) or [part.groups()[1:] for part in parts if part] != allowed:
        keys.refuse("hidden_irreps", f"{text!r} is not supported; allowed: 64x0e + 64x1o + 64x2e")
        return 1, 0
    widths = {int(part[1]) for part in parts if part}
    if len(widths) > 1:
        keys.refuse("hidden_irreps", f"{text!r} is not supported; allowed: one multiplicity")
    return widths.pop(), len(parts) - 1


def _energies(keys: Section) -> Any:
    value = _literal(keys, "E0s", "isolated")
    if isinstance(value, Mapping):
        from ase.data import chemical_symbols

        try:
            return {
                chemical_symbols[int(number)]: float(energy) for number, energy in value.items()
            }
        except (ValueError, IndexError, TypeError):
            value = "other"
    names = {"average": "least_squares", "isolated": "isolated"}
    if str(value).lower() not in names:
        keys.refuse("E0s", "not supported; allowed: average, or energies by atomic number")
    return names.get(str(value).lower(), "auto")


def _training(keys: Section) -> dict[str, Any]:
    keys.only("optimizer", "adam", "adamw")
    rate, epochs = keys.number("lr", 0.01), int(keys.number("max_num_epochs", 2048))
    keys.only("scheduler", "ReduceLROnPlateau")
    decay, waiting = keys.number("lr_factor", 0.8), int(keys.number("scheduler_patience", 50))
    average, has_average = keys.get("ema_decay", 0.99), keys.get("ema", False)
    device = keys.get("device", "cpu")
    if device not in ("cpu", "cuda"):
        keys.refuse("device", f"{device!r} is not supported; allowed: cpu, cuda")
    return {
        "epochs": epochs,
        "batch_size": keys.get("batch_size", 10),
        "optimizer": {
            "name": keys.get("optimizer", "adam"),
            "lr": rate,
            "beta1": keys.get("beta", 0.9),
            "weight_decay": keys.get("weight_decay", 5e-7),
        },
        # torch waits for one epoch more than `patience`.
        "schedule": {"name": "plateau", "decay": decay, "patience": waiting + 1},
        "clip_norm": keys.get("clip_grad", 10.0),
        "ema_decay": average if has_average else None,
        "early_stopping": {"patience": int(keys.number("patience", 2048))},
        "device": device,
    }


def _literal(keys: Section, key: str, default: Any) -> Any:
    """Return a value, or what its text is in Python's syntax, as mace-torch reads it."""
    value = keys.get(key, default)
    try:
        return ast.literal_eval(value) if isinstance(value, str) else value
    except (ValueError, SyntaxError):
        return value


def _loss(files: list[str], energy: float, forces: float) -> dict[str, float]:
    """Return the weights; the energy term of mace-torch has one atom more in its denominator."""
    frames = open_atoms([resolve_path(file) for file in files])
    atoms = sum(frames.num_atoms(i) for i in range(len(frames))) / max(1, len(frames))
    weights = {"e": energy / max(1.0, atoms), "f": forces}
    return {f"{end}_pref_{part}": w for part, w in weights.items() for end in ("start", "limit")}
