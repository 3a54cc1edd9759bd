"""Reading and writing of se_atten in deepmd-kit's input.json and model files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from scitoolkit.core.errors import DataError
from scitoolkit.potentials.deepmd.descriptors.attention_layer import AttentionLayer
from scitoolkit.potentials.deepmd.descriptors.trees import refuse, sel_from_input, statistics
from scitoolkit.potentials.deepmd.file import Tree, fill_networks, network_collection
from scitoolkit.potentials.deepmd.input_section import Section

# The TensorFlow backend does not scale the logits, and normalises only directions above 1e-6; its
# files nevertheless contain the settings of the other backends.
TENSORFLOW = "TensorFlow"
TENSORFLOW_ATTENTION = {"temperature": 1.0, "gate_floor": 1e-6}


def settings_from_input(section: Section) -> dict[str, Any]:
    """Return the settings specific to se_atten from a section of deepmd-kit's input.json."""
    sel = sel_from_input(section)
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
        "sel": sum(sel) if isinstance(sel, list) else sel,
        "axis_neurons": section.get("axis_neuron", 4),
        "type_width": section.get("tebd_dim", 8),
        "type_input": form,
        "type_output": section.get("concat_output_tebd", True),
        "attention_layers": section.get("attn_layer", 2),
        "attention_width": section.get("attn", 128),
        "angular_gate": section.get("attn_dotr", True),
        "normalize": section.get("normalize", True),
        "smooth": section.get("smooth_type_embedding", smooth),
        "scaling": section.get("scaling_factor", 1.0),
        "temperature": section.get("temperature"),
        "norm_epsilon": section.get("ln_eps") or 1e-5,
    }


def settings_from_tree(tree: Tree, where: str) -> dict[str, Any]:
    """Return the settings specific to se_atten from a `.dp` file.

    Raises:
        DataError: a setting is not supported.
    """
    refuse(
        where,
        use_econf_tebd=tree["use_econf_tebd"],
        attn_mask=tree["attn_mask"],
        lmax=tree.get("lmax", 1) != 1,
    )
    attention = {"temperature": tree["temperature"]}
    if tree["backend"] == TENSORFLOW and tree["attn_layer"]:
        refuse(
            where,
            **{
                "exclude_types of the TensorFlow backend's attention": tree["exclude_types"],
                "the TensorFlow backend's smooth_type_embedding": tree["smooth_type_embedding"],
            },
        )
        attention = TENSORFLOW_ATTENTION
    return {
        "sel": sum(np.ravel(tree["sel"]).tolist()),
        "axis_neurons": tree["axis_neuron"],
        "type_width": tree["tebd_dim"],
        "type_input": tree["tebd_input_mode"],
        "type_output": tree["concat_output_tebd"],
        "attention_layers": tree["attn_layer"],
        "attention_width": tree["attn"],
        "angular_gate": tree["attn_dotr"],
        "normalize": tree["normalize"],
        "smooth": tree["smooth_type_embedding"],
        "scaling": tree["scaling_factor"],
        **attention,
        "norm_epsilon": tree["ln_eps"],
    }


def fill_attention(out: Any, tree: Tree, where: str) -> None:
    """Set the weights from a tree.

    Raises:
        DataError: the environments have a mean, or the attention has several heads.
    """
    if statistics(tree, "davg", where).any():
        raise DataError("se_atten with set_davg_zero: false", where=where)
    fill_networks(out.embedding, tree["embeddings"], where)
    if out.type_network is not None:
        fill_networks(out.type_network, tree["embeddings_strip"], where)
    (layer,) = tree["type_embedding"]["embedding"]["layers"]
    activation = str(layer["activation_function"]).lower()
    if not layer["resnet"] or activation not in ("linear", "none", "tanh"):
        raise DataError(
            "a type embedding without residual connection, or neither linear nor tanh", where=where
        )
    table = layer["@variables"]["w"]
    if layer["@variables"]["b"] is not None:
        table = table + np.ravel(layer["@variables"]["b"])
    # The inputs are one-hot, so a table of values determines the layer.
    table = (np.tanh(table) if activation == "tanh" else table) + _shortcut(*table.shape)
    out.type_embedding.copy_(torch.from_numpy(table))
    for own, theirs in zip(out.layers, tree["attention_layers"]["attention_layers"], strict=True):
        attention = theirs["attention_layer"]
        refuse(where, num_heads=attention["num_heads"] != 1)
        for weight, bias, held in (
            (own.project, own.project_bias, attention["in_proj"]),
            (own.mix, own.mix_bias, attention["out_proj"]),
            (own.norm_weight, own.norm_bias, theirs["attn_layer_norm"]),
        ):
            weight.copy_(torch.from_numpy(held["@variables"]["w"]))
            bias.copy_(torch.from_numpy(np.ravel(held["@variables"]["b"])))


def _shortcut(types: int, width: int) -> np.ndarray:
    """Return the residual connection of deepmd-kit's linear layer for one-hot inputs."""
    if width in (types, 2 * types):
        return np.tile(np.eye(types), width // types)
    return np.zeros((types, width))


def attention_tree(held: Any, type_map: Sequence[str], precision: str) -> Tree:
    """Return the part of the tree specific to se_atten."""
    config, types, kind = held.config, len(type_map), "embedding_network"
    temperature, backend = config.temperature, _backend(config)
    if backend == TENSORFLOW:
        temperature = None
    settings = {
        "embed_dim": config.embedding[-1],
        "hidden_dim": config.attention_width,
        "nnei": config.sel,
        "dotr": config.angular_gate,
        "do_mask": False,
        "scaling_factor": config.scaling,
        "normalize": config.normalize,
        "temperature": temperature,
        "precision": precision,
    }
    norm = {"trainable_ln": True, "ln_eps": config.norm_epsilon}
    out = {
        "type": "dpa1",
        "ntypes": types,
        "axis_neuron": config.axis_neurons,
        "tebd_dim": config.type_width,
        "tebd_input_mode": config.type_input,
        "set_davg_zero": True,
        "attn": config.attention_width,
        "attn_layer": config.attention_layers,
        "attn_dotr": config.angular_gate,
        "attn_mask": False,
        "scaling_factor": config.scaling,
        "normalize": config.normalize,
        "temperature": temperature,
        **norm,
        "smooth_type_embedding": config.smooth,
        "concat_output_tebd": config.type_output,
        "use_econf_tebd": False,
        "use_tebd_bias": False,
        "embeddings": network_collection(held.embedding, kind, types, 0),
        "attention_layers": {
            "@class": "NeighborGatedAttention",
            "@version": 1,
            **settings,
            **norm,
            "layer_num": config.attention_layers,
            "attention_layers": [_layer_tree(layer, settings, norm) for layer in held.layers],
        },
        "type_embedding": _type_embedding_tree(held, type_map, precision),
    }
    if held.type_network is not None:
        out["embeddings_strip"] = network_collection(held.type_network, kind, types, 0)
    if config.attention_layers:
        out["backend"] = backend
    return out


def _backend(config: Any) -> str:
    """Return the backend of deepmd-kit that computes this attention.

    Raises:
        DataError: no backend does.
    """
    if not config.gate_floor:
        return "scitoolkit"
    wanted = {
        **TENSORFLOW_ATTENTION,
        "scaling": 1.0,
        "normalize": True,
        "smooth": False,
        "exclude_types": [],
    }
    for name, value in wanted.items():
        if (configured := getattr(config, name)) != value:
            raise DataError(
                f"with a gate_floor only deepmd-kit's TensorFlow backend computes this attention, "
                f"and it has no {name} {configured}",
                allowed=str(value),
            )
    return TENSORFLOW


def _layer_tree(layer: AttentionLayer, settings: Tree, norm: Tree) -> Tree:
    precision = settings["precision"]
    return {
        **settings,
        **norm,
        "attention_layer": {
            **settings,
            "num_heads": 1,
            "bias": True,
            "smooth": layer.config.smooth,
            "in_proj": _linear(layer.project, layer.project_bias, precision),
            "out_proj": _linear(layer.mix, layer.mix_bias, precision),
        },
        "attn_layer_norm": {
            "@class": "LayerNorm",
            "@version": 1,
            "eps": norm["ln_eps"],
            "trainable": True,
            "precision": precision,
            "@variables": {
                "w": layer.norm_weight.detach().numpy(),
                "b": layer.norm_bias.detach().numpy(),
            },
        },
    }


def _linear(
    weight: torch.Tensor, bias: torch.Tensor | None, precision: str, activation: str = "none"
) -> Tree:
    return {
        "@class": "Layer",
        "@version": 2,
        "bias": bias is not None,
        "use_timestep": False,
        "activation_function": activation,
        "resnet": activation != "none",
        "precision": precision,
        "trainable": True,
        "@variables": {
            "w": weight.detach().numpy(),
            "b": None if bias is None else bias.detach().numpy(),
            "idt": None,
        },
    }


def _type_embedding_tree(held: Any, type_map: Sequence[str], precision: str) -> Tree:
    table = held.type_embedding.detach()
    types, width = table.shape
    weight = table - torch.from_numpy(_shortcut(types, width)).to(table.dtype)
    same = {"resnet_dt": False, "precision": precision, "activation_function": "Linear"}
    return {
        "@class": "TypeEmbedNet",
        "@version": 2,
        "ntypes": types,
        "neuron": [width],
        **same,
        "trainable": True,
        "padding": True,
        "use_econf_tebd": False,
        "use_tebd_bias": False,
        "type_map": list(type_map),
        "embedding": {
            "@class": "EmbeddingNetwork",
            "@version": 2,
            "in_dim": types,
            "neuron": [width],
            **same,
            "bias": False,
            "layers": [_linear(weight, None, precision, "Linear")],
        },
    }
