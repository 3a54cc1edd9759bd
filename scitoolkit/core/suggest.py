"""Suggestions for mistyped names and keys, with synonyms used by other programs."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# Groups of keys with the same meaning in related tools.
_SYNONYM_GROUPS = (
    ("lr", "learning_rate", "start_lr", "step_size"),
    ("cutoff", "r_max", "rcut", "r_cut"),
    ("batch_size", "bs", "minibatch_size", "mini_batch_size", "global_batch_size"),
    ("epochs", "max_epochs", "num_epochs", "n_epochs", "max_num_epochs"),
    ("steps", "max_steps", "num_steps", "numb_steps", "max_iter"),
    ("weight_decay", "wd", "l2"),
    ("hidden", "hidden_size", "units", "width", "neuron", "hidden_dim", "channels"),
    ("channels", "num_channels", "num_features"),
    ("lmax", "max_ell", "l_max", "lmax_sh"),
    ("lmax_hidden", "max_l", "hidden_irreps"),
    ("num_basis", "num_radial_basis", "num_bessels", "num_bessel"),
    ("envelope", "num_cutoff_basis", "polynomial_cutoff_p"),
    ("radial_widths", "radial_mlp", "radial_mlp_width"),
    ("readout_width", "mlp_irreps"),
    ("layers", "num_layers", "depth", "n_layers", "num_interactions"),
    ("cutoff_smooth", "rcut_smth", "rcut_smooth"),
    ("axis_neurons", "axis_neuron", "m2"),
    ("embedding", "embedding_neuron", "embedding_widths"),
    ("fitting", "fitting_neuron", "fitting_net", "fitting_widths"),
    ("frame_parameters", "numb_fparam", "fparam"),
    ("atom_parameters", "numb_aparam", "aparam"),
    ("ema_decay", "ema", "swa_decay"),
    ("seed", "random_state", "random_seed"),
    ("accumulate", "accumulate_grad_batches", "gradient_accumulation_steps", "grad_accum"),
    ("clip_norm", "clip", "gradient_clip_val", "max_grad_norm", "grad_clip"),
    ("precision", "dtype", "amp", "mixed_precision"),
    ("strategy", "accelerator", "backend", "distributed"),
    ("path", "file", "filename", "data_path", "training_data"),
    ("variable", "var", "field", "variable_name"),
    ("warmup", "warmup_steps", "num_warmup_steps", "warmup_epochs"),
    ("rank", "num_modes", "n_modes", "n_components", "modes"),
    ("inputs", "input_steps", "lookback", "window", "history", "input_length"),
    ("leads", "horizon", "forecast_steps", "output_steps", "lead_time", "num_leads"),
    ("dropout", "dropout_rate", "p_drop"),
    ("patience", "early_stopping_patience"),
    ("optimizer", "optim", "opt"),
    ("schedule", "scheduler", "lr_scheduler"),
    ("error_bound", "eb", "tolerance", "tol"),
)
SAME_MEANING: dict[str, str] = {
    "learning_rate": "lr",
    "max_epochs": "epochs",
    "num_epochs": "epochs",
    "n_epochs": "epochs",
    "max_steps": "steps",
    "num_steps": "steps",
    "numb_steps": "steps",
    "minibatch_size": "batch_size",
    "mini_batch_size": "batch_size",
    "accumulate_grad_batches": "accumulate",
    "gradient_accumulation_steps": "accumulate",
    "max_grad_norm": "clip_norm",
    "random_seed": "seed",
    "random_state": "seed",
    "r_max": "cutoff",
    "rcut": "cutoff",
    "r_cut": "cutoff",
    "rcut_smth": "cutoff_smooth",
    "num_channels": "channels",
    "num_interactions": "layers",
    "num_layers": "layers",
    "max_ell": "lmax",
    "l_max": "lmax",
    "max_L": "lmax_hidden",
    "num_radial_basis": "num_basis",
    "num_bessels": "num_basis",
    "num_cutoff_basis": "envelope",
    "polynomial_cutoff_p": "envelope",
    "axis_neuron": "axis_neurons",
    "numb_fparam": "frame_parameters",
    "numb_aparam": "atom_parameters",
}
"""{another program's key: our key} of equal meaning, unit and type: accepted with a notice where a
section has our key and none of the other name. Words that differ in any of these (`width`, which
may be one number or a list, `hidden_irreps`) are only suggested, by the groups above."""
_SYNONYMS: dict[str, tuple[str, ...]] = {
    word: tuple(other for group in _SYNONYM_GROUPS if word in group for other in group)
    for group in _SYNONYM_GROUPS
    for word in group
}


def nearest_name(name: str, choices: Iterable[str]) -> str | None:
    """Return the choice closest in spelling to `name`, or None if none is close.

    Example:
        >>> nearest_name("sts", ["sst", "ice"])
        'sst'
    """
    choices = list(choices)
    by_lower = {choice.lower(): choice for choice in reversed(choices)}
    if name.lower() in by_lower:
        return by_lower[name.lower()]
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return by_lower[close[0]] if close else None


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """Return " (did you mean NAME?)" for the end of a message; "" if no choice is close.

    Example:
        >>> did_you_mean("sts", ["sst", "ice"])
        ' (did you mean sst?)'
    """
    near = nearest_name(name, choices)
    return f" (did you mean {near}?)" if near else ""


def nearest_key(key: str, valid: Iterable[str]) -> str | None:
    """Return the valid dotted key that the invalid `key` most likely stands for.

    The leaf name is looked up in every section first (the right name in the wrong section is the
    most common mistake), then its synonyms, then the closest spelling.

    Example:
        >>> nearest_key("training.lr", ["training.epochs", "training.optimizer.lr"])
        'training.optimizer.lr'
        >>> nearest_key("training.learning_rate", ["training.epochs", "training.optimizer.lr"])
        'training.optimizer.lr'
    """
    valid = [v for v in valid if v != key]
    section, _, leaf = key.rpartition(".")
    leaves: dict[str, list[str]] = {}
    for candidate in valid:
        leaves.setdefault(candidate.rpartition(".")[2], []).append(candidate)
    for name in (leaf, leaf.lower(), *_SYNONYMS.get(leaf.lower(), ())):
        if name in leaves:
            return _closest_section(section, leaves[name])
    spelled = difflib.get_close_matches(leaf.lower(), [*leaves, *_SYNONYMS], n=5, cutoff=0.6)
    for name in spelled:
        for word in (name, *_SYNONYMS.get(name, ())):
            if word in leaves:
                return _closest_section(section, leaves[word])
    whole = difflib.get_close_matches(key, valid, n=1, cutoff=0.6)
    return whole[0] if whole else None


def _closest_section(section: str, candidates: list[str]) -> str:
    def distance(candidate: str) -> tuple[int, float, int]:
        mine, theirs = section.split("."), candidate.split(".")[:-1]
        shared = 0
        for a, b in zip(mine, theirs, strict=False):
            if a != b:
                break
            shared += 1
        alike = difflib.SequenceMatcher(None, section, ".".join(theirs)).ratio()
        return (-shared, -alike, len(theirs))

    return min(candidates, key=distance)
