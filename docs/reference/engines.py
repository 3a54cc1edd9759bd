"""The page engines.md: which potential runs in which engine, as the export itself decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from scitoolkit.core.errors import ConfigError
from scitoolkit.potentials.deepmd.descriptors.config import descriptors
from scitoolkit.potentials.export.write import library_source
from scitoolkit.potentials.model_config import models

PAGE = """# Which potential runs where

Written by `python docs/reference/make.py`: for each row a model is built and given to the export.

Python means `Calculator` and `scitoolkit predict`; ASE is the same calculator, on any device, also
behind a socket of i-PI, and torch-sim's `TorchSimModel` calls the same model for many systems.
C stands for the [exported library](../how-to/potentials-in-lammps.md) and all that call it: C, C++,
Fortran, `LibraryCalculator` (ASE without torch) and the pair style of LAMMPS. A number in brackets
stands for the reason below the table, which is the message of `scitoolkit export`.

| model | Python, ASE | C, C++, Fortran | LAMMPS |
|---|---|---|---|
{rows}

{reasons}

`zbl`, and energies of lone atoms (`e0`), are part of every exported model.
"""
PRECISIONS: tuple[Literal["float32", "float64"], ...] = ("float32", "float64")


def _cases() -> dict[str, tuple[str, Mapping[str, Any]]]:
    """Return the name of a model and its settings by the text of the row."""
    examples = {name: models.get(name).example for name in models}
    rows = {f"`{name}`": (name, examples[name]) for name in models if name != "deep_potential"}
    small = {"fitting": [8, 8]}
    for name in descriptors:
        text = f"`deep_potential` with `{name}`"
        settings = {"name": name, **descriptors.get(name).example}
        rows[text] = ("deep_potential", {"descriptors": [settings], **small})
    rows["`deep_potential` with several descriptors"] = (
        "deep_potential",
        examples["deep_potential"],
    )
    options = {
        "se_e2_a": {
            "`exclude_types`": {"exclude_types": [(0, 0)]},
            "`embedding_resnet_dt`": {"embedding_resnet_dt": "same_width", "embedding": [4, 4]},
            "`frame_parameters`": {"frame_parameters": 1},
            "`atom_parameters`": {"atom_parameters": 1},
        },
        "mace": {
            "`long_range`": {"long_range": {}},
            "`pair_repulsion`": {"pair_repulsion": True},
            "`distance_transform`": {"distance_transform": "agnesi"},
            "`density`": {"density": True},
            "`first_density`": {"first_density": True},
        },
        "nequip": {
            "`parity`": {"parity": True, "layers": 3},
            "`species_scale`": {"species_scale": True},
            "`repulsion_envelope`": {"repulsion_envelope": 6},
        },
    }
    for name, variants in options.items():
        for text, settings in variants.items():
            rows[f"`{name}` with {text}"] = (name, {**examples[name], **settings})
    return rows


def refusal(name: str, settings: Mapping[str, Any], precision: str) -> str:
    """Return why a model of two elements is not exported in a precision, or ""."""
    config = models.get(name).model_validate({**settings, "name": name, "precision": precision})
    try:
        library_source(config.build(["O", "H"]).eval(), config)
    except ConfigError as error:
        return error.what
    return ""


def engines_page() -> str:
    """Return engines.md: a row a model or option, a column an engine."""
    reasons: list[str] = []
    rows = []
    for text, (name, settings) in _cases().items():
        refused = {each: refusal(name, settings, each) for each in PRECISIONS}
        reasons += [why for why in dict.fromkeys(refused.values()) if why and why not in reasons]
        marks = sorted({f"[{reasons.index(why) + 1}]" for why in refused.values() if why})
        cell = ", ".join([*(each for each in PRECISIONS if not refused[each]), *marks])
        rows.append(f"| {text} | {', '.join(PRECISIONS)} | {cell} | {cell} |")
    listed = "\n".join(f"{number}. {why}" for number, why in enumerate(reasons, 1))
    return PAGE.format(rows="\n".join(rows), reasons=listed)
