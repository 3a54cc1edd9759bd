"""deepmd-kit's `input.json` as a configuration of ours, for the models that are built here.

Every key is either translated, known to have no effect here, or refused by name: a setting that
would be ignored in silence is an error.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from scitoolkit.core.config import Problem

# Keys that decide where files go or how much is told, and comments of deepmd-kit's own.
_WITHOUT_EFFECT = {
    "training": {"disp_file", "disp_training", "time_training", "profiling", "profiling_file",
                 "tensorboard", "tensorboard_log_dir", "tensorboard_freq", "save_ckpt",
                 "change_bias_after_training", "enable_profiler", "max_ckpt_keep", "stat_file"},
    "descriptor": {"trainable", "precision", "seed", "activation_function"},
    "fitting_net": {"trainable", "rcond", "atom_ener"},
    "model": {"data_stat_nbatch", "data_stat_protect", "data_bias_nsample", "type_embedding"},
}  # fmt: skip
_DESCRIPTORS = {"se_e2_a": "se_e2_a", "se_a": "se_e2_a", "se_e2_r": "se_e2_r", "se_r": "se_e2_r"}
_PRECISIONS = {"default": "float64", "float64": "float64", "double": "float64",
               "float32": "float32", "single": "float32", "high": "float64", "low": "float32",
               "mixed": None}  # fmt: skip


class _Section:
    """A section that remembers which of its keys were asked for."""

    def __init__(self, name: str, values: Any, problems: list[Problem]) -> None:
        self.name, self._problems = name, problems
        self._values = {k: v for k, v in dict(values or {}).items() if not k.startswith("_")}
        self._left = set(self._values) - _WITHOUT_EFFECT.get(name.rpartition(".")[2], set())

    def get(self, key: str, default: Any = None) -> Any:
        self._left.discard(key)
        return self._values.get(key, default)

    def section(self, key: str) -> _Section:
        return _Section(f"{self.name}.{key}", self.get(key), self._problems)

    def refuse(self, key: str, why: str) -> None:
        self._problems.append(Problem(f"{self.name}.{key}".lstrip("."), why))

    def only(self, key: str, *allowed: Any) -> None:
        """Refuse any value of `key` but these."""
        value = self.get(key, allowed[0])
        if value not in allowed:
            self.refuse(key, f"{value!r} is not built here; allowed: {allowed}")

    def close(self) -> None:
        for key in sorted(self._left):
            self.refuse(key, "not known here, and it would change the result")


def translate(raw: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return our raw configuration for one of deepmd-kit's, or None when it is not one.

    Raises:
        ConfigProblems: all keys that cannot be honoured, at once.

    Example:
        >>> text = {"model": {"type_map": ["H"], "descriptor": {"type": "se_e2_a", "sel": [9],
        ...     "rcut": 6.0}, "fitting_net": {}}, "learning_rate": {}, "loss": {},
        ...     "training": {"training_data": {"systems": ["a"], "batch_size": 1}, "numb_steps": 9}}
        >>> translate(text)["model"]["cutoff"]
        6.0
    """
    from scitoolkit.core.config import ConfigProblems

    model = raw.get("model")
    if not (isinstance(model, Mapping) and "training" in raw and "descriptor" in model):
        return None
    problems: list[Problem] = []
    top = _Section("", raw, problems)
    top.get("$schema"), top.get("nvnmd")
    sections = {name: _Section(name, top.get(name), problems)
                for name in ("model", "learning_rate", "loss", "training")}  # fmt: skip
    top.close()
    out = {
        "surrogate": "potentials",
        "type_map": sections["model"].get("type_map"),
        "model": _model(sections["model"]),
        "loss": _loss(sections["loss"]),
        **_training(sections["training"], sections["learning_rate"]),
    }
    for section in sections.values():
        section.close()
    if problems:
        raise ConfigProblems(problems)
    return out


def _model(section: _Section) -> dict[str, Any]:
    descriptor, fitting = section.section("descriptor"), section.section("fitting_net")
    kind = descriptor.get("type")
    if kind not in _DESCRIPTORS:
        descriptor.refuse("type", f"{kind!r} is not built here; allowed: se_e2_a, se_e2_r")
        return {}
    fitting.only("type", "ener")
    for part in (descriptor, fitting):
        part.only("activation_function", "tanh")
    for key in ("numb_fparam", "numb_aparam"):
        fitting.only(key, 0)
    descriptor.only("exclude_types", [])
    descriptor.only("set_davg_zero", False)
    precision = _PRECISIONS.get(str(descriptor.get("precision", "default")))
    if precision is None or fitting.get("precision", "default") not in _PRECISIONS:
        descriptor.refuse("precision", "allowed: default, float64, float32")
    sel = descriptor.get("sel", "auto")
    out = {
        "name": _DESCRIPTORS.get(str(kind), kind),
        "cutoff": descriptor.get("rcut", 6.0), "cutoff_smooth": descriptor.get("rcut_smth", 0.5),
        "sel": "auto" if isinstance(sel, str) else sel,
        "embedding": descriptor.get("neuron", [10, 20, 40]),
        "one_side": descriptor.get("type_one_side", False),
        "embedding_step": "same_width" if descriptor.get("resnet_dt", False) else "none",
        "fitting": fitting.get("neuron", [120, 120, 120]),
        "fitting_step": "same_width" if fitting.get("resnet_dt", True) else "none",
        "precision": precision or "float64", "seed": fitting.get("seed") or 0,
    }  # fmt: skip
    if out["name"] == "se_e2_a":
        out["axis_neurons"] = descriptor.get("axis_neuron", 4)
    else:
        out["axis_neurons"] = 1
    descriptor.close()
    fitting.close()
    return out


def _loss(section: _Section) -> dict[str, Any]:
    section.only("type", "ener")
    out = {}
    defaults = {"start_pref_e": 0.02, "limit_pref_e": 1.0, "start_pref_f": 1000,
                "limit_pref_f": 1.0, "start_pref_v": 0.0, "limit_pref_v": 0.0}  # fmt: skip
    for key, default in defaults.items():
        out[key] = section.get(key, default)
    for part in ("ae", "pf", "gf"):
        for when in ("start", "limit"):
            section.only(f"{when}_pref_{part}", 0, 0.0)
    return out


def _training(section: _Section, rate: _Section) -> dict[str, Any]:
    rate.only("type", "exp")
    first = float(rate.get("start_lr", 1e-3))
    last = float(rate.get("stop_lr", 1e-8))
    steps = int(section.get("numb_steps", section.get("stop_batch", 0)))
    if steps < 1:
        section.refuse("numb_steps", "missing, and it has no default")
    data = section.section("training_data")
    held_out = section.section("validation_data")
    systems, others = data.get("systems"), held_out.get("systems")
    for part in (data, held_out):
        part.get("auto_prob"), part.get("numb_btch"), part.get("numb_batch")
    held_out.get("batch_size")
    training = {
        "steps": max(1, steps), "batch_size": _batch_size(data, systems),
        "seed": section.get("seed") or 0,
        "optimizer": {"name": "adam", "lr": first},
        "schedule": {
            "name": "exponential", "final_factor": last / first,
            "hold_steps": int(rate.get("decay_steps", 5000)),
        },
        "log_every": section.get("disp_freq", 1000),
        "checkpoint": {"every_steps": section.get("save_freq", 1000), "every_epochs": None},
    }  # fmt: skip
    data.close()
    held_out.close()
    listed = [systems] if isinstance(systems, str) else systems
    tested = [others] if isinstance(others, str) else others
    return {
        "data": {
            "train": listed or [],
            **({"validation": tested, "test": tested} if tested else {}),
        },
        "training": training,
    }


def _batch_size(data: _Section, systems: Any) -> int:
    """Return the number of frames: deepmd-kit's `auto` takes at least 32 atoms (or the stated)."""
    value = data.get("batch_size", "auto")
    if isinstance(value, int):
        return value
    if isinstance(value, list) and len(set(value)) == 1:
        return int(value[0])
    kind, _, number = str(value).partition(":")
    if kind != "auto":
        data.refuse("batch_size", f"{value!r} is not built here; allowed: a number, auto, auto:N")
        return 1
    from scitoolkit.core.config import resolve_path
    from scitoolkit.io.atoms import open_atoms

    listed = [systems] if isinstance(systems, str) else systems or []
    atoms = len(open_atoms([resolve_path(s) for s in listed])[0].species) if listed else 32
    return int(np.ceil(int(number or 32) / atoms))
