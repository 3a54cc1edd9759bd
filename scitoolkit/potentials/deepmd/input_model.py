"""Translation of the model section of deepmd-kit's `input.json`."""

from __future__ import annotations

from typing import Any

from scitoolkit.potentials.deepmd.descriptors.config import deepmd_names, descriptors
from scitoolkit.potentials.deepmd.input_section import Section

_PRECISIONS = {
    "default": "float64",
    "float64": "float64",
    "double": "float64",
    "float32": "float32",
    "single": "float32",
    "high": "float64",
    "low": "float32",
    "mixed": None,
}


def model_settings(section: Section) -> dict[str, Any]:
    """Return the `model` section; unsupported settings are recorded as problems."""
    descriptor, fitting = section.section("descriptor"), section.section("fitting_net")
    fitting.only("trainable", True, [True] * len(fitting.get("neuron", [120, 120, 120])))
    hybrid = descriptor.get("type") == "hybrid"
    listed = descriptor.sections("list", "descriptor") if hybrid else [descriptor]
    parts = [_descriptor(part) for part in listed]
    if any(part is None for part in parts):
        return {}
    if hybrid:
        descriptor.close()
    _type_embedding(section, [part for part in parts if part is not None])
    for key in ("pair_exclude_types", "atom_exclude_types"):
        section.only(key, [])
    section.only("type", "standard")
    precision = _precision([*listed, fitting])
    out = {
        "name": "deep_potential",
        "descriptors": parts,
        "frame_parameters": fitting.get("numb_fparam", 0),
        "atom_parameters": fitting.get("numb_aparam", 0),
        "fitting": fitting.get("neuron", [120, 120, 120]),
        "fitting_resnet_dt": "same_width" if fitting.get("resnet_dt", True) else "none",
        "precision": precision,
        "seed": fitting.get("seed") or 0,
    }
    _fitting(fitting)
    return out


def reference_energies(section: Section) -> dict[str, float] | None:
    """Return the energies of lone atoms by species, `fitting_net.atom_ener`; None without them."""
    fitting = section.section("fitting_net")
    values, names = fitting.get("atom_ener"), section.get("type_map") or []
    if not values:
        return None
    if len(values) != len(names) or any(not isinstance(v, int | float) for v in values):
        fitting.refuse("atom_ener", f"{values!r} is not a number for each of {names}")
        return None
    return {name: float(value) for name, value in zip(names, values, strict=True)}


def _fitting(fitting: Section) -> None:
    fitting.get("atom_ener")  # see reference_energies
    fitting.only("type", "ener")
    fitting.only("activation_function", "tanh")
    fitting.only("dim_case_embd", 0)
    fitting.only("default_fparam", None)
    fitting.only("use_aparam_as_mask", False)
    fitting.close()


def _precision(sections: list[Section]) -> str:
    """Return the highest precision of the descriptors and the fitting net."""
    precisions = set()
    for section in sections:
        precision = _PRECISIONS.get(str(section.get("precision", "default")))
        if precision is None:
            section.refuse("precision", "allowed: default, float64, float32")
        precisions.add(precision)
    return "float32" if precisions == {"float32"} else "float64"


def _descriptor(section: Section) -> dict[str, Any] | None:
    kind = str(section.get("type"))
    name = deepmd_names().get(kind)
    if name is None:
        allowed = ", ".join([*deepmd_names(), "hybrid of these"])
        section.refuse("type", f"{kind!r} is not supported; allowed: {allowed}")
        return None
    section.only("trainable", True)
    out = {"name": name, **descriptors.get(name).from_deepmd_input(section)}
    section.close()
    return out


def _type_embedding(section: Section, parts: list[dict[str, Any]]) -> None:
    """Translate the TensorFlow backend's `type_embedding` if it has one layer, as `tebd_dim`."""
    embedding = section.get("type_embedding")
    if not embedding:
        return
    of_types = [part for part in parts if "type_width" in part]
    widths = list(embedding.get("neuron", [8]))
    if not of_types or len(widths) != 1:
        section.refuse("type_embedding", "only with se_atten, and of one layer")
    for part in of_types:
        part["type_width"] = widths[0]
