"""The model of deepmd-kit's `input.json` in our terms."""

from __future__ import annotations

from typing import Any

from scitoolkit.potentials.deepmd_section import Section

_KINDS = {"se_e2_a": "se_e2_a", "se_a": "se_e2_a", "se_e2_r": "se_e2_r", "se_r": "se_e2_r",
          "se_atten": "se_atten", "dpa1": "se_atten"}  # fmt: skip
_ALLOWED = "se_e2_a, se_e2_r, se_atten, and hybrid of these"
_PRECISIONS = {"default": "float64", "float64": "float64", "double": "float64",
               "float32": "float32", "single": "float32", "high": "float64", "low": "float32",
               "mixed": None}  # fmt: skip


def model_settings(section: Section) -> dict[str, Any]:
    """Return our `model` section; what is not built here is noted as a problem."""
    descriptor, fitting = section.section("descriptor"), section.section("fitting_net")
    hybrid = descriptor.get("type") == "hybrid"
    listed = descriptor.sections("list", "descriptor") if hybrid else [descriptor]
    parts = [_descriptor(each) for each in listed]
    if any(part is None for part in parts):
        return {}
    if hybrid:
        descriptor.close()
    _type_embedding(section, [part for part in parts if part is not None])
    for key in ("pair_exclude_types", "atom_exclude_types"):
        section.only(key, [])
    section.only("type", "standard")
    precision = _precision(listed[0], fitting)
    common = {
        "fitting": fitting.get("neuron", [120, 120, 120]),
        "fitting_step": "same_width" if fitting.get("resnet_dt", True) else "none",
        "precision": precision, "seed": fitting.get("seed") or 0,
    }  # fmt: skip
    given = {
        "frame_parameters": fitting.get("numb_fparam", 0),
        "atom_parameters": fitting.get("numb_aparam", 0),
    }
    _fitting(fitting)
    plain = dict(parts[0] or {})
    if len(parts) == 1 and plain["name"] != "se_atten" and not any(given.values()):
        if not plain.pop("exclude_types") and not plain.pop("zero_mean"):
            return {**plain, **common}
    return {"name": "deep_potential", "descriptors": parts, **given, **common}


def _fitting(fitting: Section) -> None:
    fitting.only("type", "ener")
    fitting.only("activation_function", "tanh")
    fitting.only("dim_case_embd", 0)
    fitting.only("default_fparam", None)
    fitting.only("use_aparam_as_mask", False)
    fitting.close()


def _precision(descriptor: Section, fitting: Section) -> str:
    precision = _PRECISIONS.get(str(descriptor.get("precision", "default")))
    if precision is None or fitting.get("precision", "default") not in _PRECISIONS:
        descriptor.refuse("precision", "allowed: default, float64, float32")
    return precision or "float64"


def _descriptor(section: Section) -> dict[str, Any] | None:
    kind = _KINDS.get(str(section.get("type")))
    if kind is None:
        section.refuse("type", f"{section.get('type')!r} is not built here; allowed: {_ALLOWED}")
        return None
    section.only("activation_function", "tanh")
    section.only("env_protection", 0.0, 0)
    sel = section.get("sel", "auto")
    out = {
        "name": kind, "cutoff": section.get("rcut", 6.0),
        "cutoff_smooth": section.get("rcut_smth", 0.5),
        "sel": "auto" if isinstance(sel, str) else sel,
        "embedding": section.get("neuron", [10, 20, 40]),
        "axis_neurons": 1 if kind == "se_e2_r" else section.get("axis_neuron", 4),
        "one_side": section.get("type_one_side", False),
        "embedding_step": "same_width" if section.get("resnet_dt", False) else "none",
        "exclude_types": section.get("exclude_types", []),
    }  # fmt: skip
    out |= _attention(section, sel) if kind == "se_atten" else {
        "zero_mean": section.get("set_davg_zero", False)
    }  # fmt: skip
    section.close()
    return out


def _attention(section: Section, sel: Any) -> dict[str, Any]:
    section.only("set_davg_zero", True)
    for key in ("attn_mask", "use_econf_tebd", "use_tebd_bias"):
        section.only(key, False)
    section.only("trainable_ln", True)
    section.only("lmax", 1)
    smooth = section.get("smooth_type_embdding", False)
    stripped = section.get("stripped_type_embedding")
    form = section.get("tebd_input_mode", "concat")
    if stripped is not None:
        form = "strip" if stripped else "concat"
    return {
        "sel": "auto" if isinstance(sel, str) else sum(sel) if isinstance(sel, list) else sel,
        "type_width": section.get("tebd_dim", 8), "type_input": form,
        "type_output": section.get("concat_output_tebd", True),
        "attention_layers": section.get("attn_layer", 2),
        "attention_width": section.get("attn", 128),
        "angular_gate": section.get("attn_dotr", True),
        "normalize": section.get("normalize", True),
        "smooth": section.get("smooth_type_embedding", smooth),
        "scaling": section.get("scaling_factor", 1.0),
        "temperature": section.get("temperature"),
        "norm_epsilon": section.get("ln_eps") or 1e-5,
    }  # fmt: skip


def _type_embedding(section: Section, parts: list[dict[str, Any]]) -> None:
    """Take the TensorFlow backend's section of that name, where it says no more than `tebd_dim`."""
    given = section.get("type_embedding")
    if not given:
        return
    held = [part for part in parts if part["name"] == "se_atten"]
    widths = list(given.get("neuron", [8]))
    if not held or len(widths) != 1:
        section.refuse("type_embedding", "only with se_atten, and of one layer")
    for part in held:
        part["type_width"] = widths[0]
