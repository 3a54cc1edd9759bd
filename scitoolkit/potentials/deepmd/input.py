"""Translation of deepmd-kit's `input.json` to a configuration of this package.

Every key is translated, known to have no effect here, or refused by name: no setting is silently
ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from scitoolkit.core.config import Problem
from scitoolkit.potentials.deepmd.input_model import model_settings, reference_energies
from scitoolkit.potentials.deepmd.input_section import Section


def translate(raw: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the raw configuration for an `input.json`, or None if `raw` is not one.

    Raises:
        ConfigProblems: lists all keys that are not supported.

    Example:
        >>> text = {"model": {"type_map": ["H"], "descriptor": {"type": "se_e2_a", "sel": [9],
        ...     "rcut": 6.0}, "fitting_net": {}}, "learning_rate": {}, "loss": {},
        ...     "training": {"training_data": {"systems": ["a"], "batch_size": 1}, "numb_steps": 9}}
        >>> translate(text)["model"]["descriptors"][0]["cutoff"]
        6.0
    """
    from scitoolkit.core.config import ConfigProblems

    model = raw.get("model")
    if not (isinstance(model, Mapping) and "training" in raw and "descriptor" in model):
        return None
    problems: list[Problem] = []
    top = Section("", raw, problems)
    top.get("$schema")
    nvnmd = Section("nvnmd", top.get("nvnmd"), problems)
    if nvnmd.get("enable", False):
        nvnmd.refuse("enable", "the model of nvnmd is not supported")
    sections = {
        name: Section(name, top.get(name), problems)
        for name in ("model", "learning_rate", "loss", "training")
    }
    top.close()
    out = {
        "domain": "potentials",
        "type_map": sections["model"].get("type_map"),
        "model": model_settings(sections["model"]),
        "loss": _loss(sections["loss"]),
        **_training(sections["training"], sections["learning_rate"]),
    }
    energies = reference_energies(sections["model"])
    if energies is not None:
        out["e0"] = energies
    for section in sections.values():
        section.close()
    if problems:
        raise ConfigProblems(problems)
    return out


def _loss(section: Section) -> dict[str, Any]:
    section.only("type", "ener")
    out = {}
    defaults = {
        "start_pref_e": 0.02,
        "limit_pref_e": 1.0,
        "start_pref_f": 1000,
        "limit_pref_f": 1.0,
        "start_pref_v": 0.0,
        "limit_pref_v": 0.0,
    }
    for key, default in defaults.items():
        out[key] = section.get(key, default)
    for part in ("ae", "pf", "gf"):
        for when in ("start", "limit"):
            section.only(f"{when}_pref_{part}", 0, 0.0)
    return out


def _training(section: Section, rate: Section) -> dict[str, Any]:
    rate.only("type", "exp")
    first = rate.number("start_lr", 1e-3)
    last = rate.number("stop_lr", 1e-8)
    steps = int(section.number("numb_steps", section.number("stop_batch", 0)))
    if steps < 1:
        section.refuse("numb_steps", "missing, and it has no default")
    data = section.section("training_data")
    held_out = section.section("validation_data")
    systems, others = data.get("systems"), held_out.get("systems")
    for part in (data, held_out):
        part.get("numb_btch"), part.get("numb_batch")
        part.only("auto_prob", "prob_sys_size")
        part.only("auto_prob_style", "prob_sys_size")
    section.only("change_bias_after_training", False)
    held_out.get("batch_size")
    training = {
        "steps": max(1, steps),
        "batch_size": _batch_size(data, systems),
        "seed": section.get("seed") or 0,
        "optimizer": {"name": "adam", "lr": first},
        "schedule": {
            "name": "exponential",
            "final_factor": last / first,
            "hold_steps": int(rate.number("decay_steps", 5000)),
        },
        "log_every": section.get("disp_freq", 1000),
        "checkpoint": {"every_steps": section.get("save_freq", 1000), "every_epochs": None},
    }
    data.close()
    held_out.close()
    listed = [systems] if isinstance(systems, str) else systems
    tested = [others] if isinstance(others, str) else others
    return {
        "data": {
            "path": listed or [],
            **({"validation": tested, "test": tested} if tested else {}),
        },
        "training": training,
    }


def _batch_size(data: Section, systems: Any) -> int:
    """Return the frames of a batch: at least 32 atoms for `auto`, N for `auto:N`.

    deepmd-kit applies this rule to each system; here the smallest frame decides.
    """
    value = data.get("batch_size", "auto")
    if isinstance(value, list) and len(set(value)) == 1:
        value = value[0]
    if isinstance(value, int):
        return value
    kind, _, number = str(value).partition(":")
    if kind != "auto":
        data.refuse("batch_size", f"{value!r} is not supported; allowed: a number, auto, auto:N")
        return 1
    from scitoolkit.core.config import resolve_path
    from scitoolkit.io.atoms import open_atoms

    listed = [systems] if isinstance(systems, str) else systems or []
    frames = open_atoms([resolve_path(s) for s in listed])
    atoms = min((frames.num_atoms(i) for i in range(len(frames))), default=32)
    return int(np.ceil(int(number or 32) / atoms))
