"""Descriptors as deepmd-kit's model files describe them, both ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from scitoolkit.core.errors import DataError
from scitoolkit.potentials.attention import (
    AttentionDescriptor,
    AttentionDescriptorConfig,
    AttentionLayer,
)
from scitoolkit.potentials.deepmd_file import Tree, fill_networks, layer_steps, network_collection
from scitoolkit.potentials.descriptors import (
    Descriptor,
    SmoothDescriptor,
    SmoothDescriptorConfig,
)
from scitoolkit.potentials.se_e2_a import SmoothEdition

KINDS = {"se_e2_a": "se_e2_a", "se_a": "se_e2_a", "se_e2_r": "se_e2_r", "se_r": "se_e2_r",
         "se_atten": "se_atten", "dpa1": "se_atten"}  # fmt: skip
AnyConfig = SmoothDescriptorConfig | AttentionDescriptorConfig


def parts(tree: Tree) -> list[Tree]:
    """Return the descriptors of a hybrid, or the one there is."""
    return tree["list"] if tree.get("type") == "hybrid" else [tree]


def descriptor_config(tree: Tree, where: str) -> AnyConfig:
    """Return the configuration of one descriptor.

    Raises:
        DataError: a kind or a setting that is not built here.
    """
    kind = KINDS.get(str(tree.get("type")))
    if kind is None:
        raise DataError(
            f"descriptor {tree.get('type')!r} is not built here", where=where,
            allowed="se_e2_a, se_e2_r, se_atten (dpa1), hybrid of these",
        )  # fmt: skip
    refuse(
        where, activation_function=set({tree["activation_function"]}) - {"tanh"},
        env_protection=tree["env_protection"], spin=tree.get("spin"),
        compress=tree.get("compress"), use_exp_switch=tree["env_mat"].get("use_exp_switch"),
    )  # fmt: skip
    common: dict[str, Any] = {
        "cutoff": tree["rcut"], "cutoff_smooth": tree["rcut_smth"], "embedding": tree["neuron"],
        "axis_neurons": tree.get("axis_neuron", 1), "one_side": tree["type_one_side"],
        "embedding_step": layer_steps(tree["embeddings"]),
        "exclude_types": [tuple(sorted(pair)) for pair in tree["exclude_types"]],
    }  # fmt: skip
    if kind != "se_atten":
        return SmoothDescriptorConfig(
            name=kind, sel=tree["sel"], zero_mean=tree.get("set_davg_zero", False), **common
        )
    refuse(
        where, use_econf_tebd=tree["use_econf_tebd"], attn_mask=tree["attn_mask"],
        lmax=tree.get("lmax", 1) != 1,
    )  # fmt: skip
    return AttentionDescriptorConfig(
        sel=sum(np.ravel(tree["sel"]).tolist()), type_width=tree["tebd_dim"],
        type_input=tree["tebd_input_mode"], type_output=tree["concat_output_tebd"],
        attention_layers=tree["attn_layer"], attention_width=tree["attn"],
        angular_gate=tree["attn_dotr"], normalize=tree["normalize"],
        smooth=tree["smooth_type_embedding"], scaling=tree["scaling_factor"],
        temperature=tree["temperature"], norm_epsilon=tree["ln_eps"], **common,
    )  # fmt: skip


def refuse(where: str, **settings: Any) -> None:
    """Raise for the first setting that is on.

    Raises:
        DataError: it is.
    """
    for name, value in settings.items():
        if value:
            raise DataError(f"{name} {value} is not built here", where=where)


def fill_descriptor(out: Descriptor | SmoothEdition, tree: Tree, where: str) -> None:
    """Put weights and statistics in place; a plain model holds them as a descriptor does.

    Raises:
        DataError: statistics that differ between the neighbours of one atom, or, for se_atten,
            a mean that is not zero: there deepmd-kit counts absent neighbours as atoms of the
            type of the frame's first atom.
    """
    mean, deviation = (_one_row_a_type(tree["@variables"][k], where) for k in ("davg", "dstd"))
    with torch.no_grad():
        fill_networks(out.embedding, tree["embeddings"], where)  # type: ignore[arg-type]
        out.get_buffer("deviation").copy_(torch.from_numpy(deviation))
        if isinstance(out, AttentionDescriptor):
            if mean.any():
                raise DataError("se_atten with set_davg_zero: false", where=where)
            _fill_attention(out, tree, where)
        else:
            out.get_buffer("mean").copy_(torch.from_numpy(mean))


def _one_row_a_type(values: np.ndarray, where: str) -> np.ndarray:
    if not np.array_equal(values, np.broadcast_to(values[:, :1], values.shape)):
        raise DataError("statistics that differ between neighbours of one atom", where=where)
    return values[:, 0]


def _fill_attention(out: AttentionDescriptor, tree: Tree, where: str) -> None:
    if out.type_network is not None:
        fill_networks(out.type_network, tree["embeddings_strip"], where)
    (layer,) = tree["type_embedding"]["embedding"]["layers"]
    table = layer["@variables"]["w"] + _shortcut(*layer["@variables"]["w"].shape)
    if layer["@variables"]["b"] is not None:
        table = table + np.ravel(layer["@variables"]["b"])
    out.type_embedding.copy_(torch.from_numpy(table))
    for own, each in zip(out.layers, tree["attention_layers"]["attention_layers"], strict=True):
        attention = each["attention_layer"]
        refuse(where, num_heads=attention["num_heads"] != 1)
        for weight, bias, held in (
            (own.project, own.project_bias, attention["in_proj"]),
            (own.mix, own.mix_bias, attention["out_proj"]),
            (own.norm_weight, own.norm_bias, each["attn_layer_norm"]),
        ):
            weight.copy_(torch.from_numpy(held["@variables"]["w"]))
            bias.copy_(torch.from_numpy(np.ravel(held["@variables"]["b"])))


def _shortcut(types: int, width: int) -> np.ndarray:
    """Return what deepmd-kit's linear layer adds to its weights for inputs of one 1 each."""
    if width in (types, 2 * types):
        return np.tile(np.eye(types), width // types)
    return np.zeros((types, width))


def descriptor_tree(
    config: AnyConfig, held: Descriptor | SmoothEdition, type_map: Sequence[str], precision: str
) -> Tree:
    """Return the tree of one descriptor, of a model that is held together by `held`."""
    types = len(type_map)
    sel = [config.sel] if isinstance(config.sel, int) else list(config.sel)
    common = {
        "@class": "Descriptor", "rcut": config.cutoff, "rcut_smth": config.cutoff_smooth,
        "sel": sel, "neuron": list(config.embedding), "trainable": True,
        "resnet_dt": config.embedding_step != "none", "type_one_side": config.one_side,
        "exclude_types": [list(pair) for pair in config.exclude_types], "env_protection": 0.0,
        "activation_function": "tanh", "precision": precision, "type_map": list(type_map),
        "spin": None, "env_mat": {
            "rcut": config.cutoff, "rcut_smth": config.cutoff_smooth, "protection": 0.0,
            "use_exp_switch": False,
        },
    }  # fmt: skip
    deviation = _a_row_a_neighbour(held.get_buffer("deviation"), sum(sel))
    if isinstance(config, AttentionDescriptorConfig):
        assert isinstance(held, AttentionDescriptor)
        variables = {"davg": np.zeros_like(deviation), "dstd": deviation}
        return common | _attention_tree(config, held, type_map, precision) | {
            "@variables": variables
        }  # fmt: skip
    assert isinstance(held, (SmoothDescriptor, SmoothEdition))
    mean = _a_row_a_neighbour(held.get_buffer("mean"), sum(sel))
    return {
        **common, "type": config.name, "@version": 2, "set_davg_zero": config.zero_mean,
        **({} if config.name == "se_e2_r" else {"axis_neuron": config.axis_neurons}),
        "embeddings": network_collection(
            held.embedding, "embedding_network", types, 1 if config.one_side else 2
        ),
        "@variables": {"davg": mean, "dstd": deviation},
    }  # fmt: skip


def _a_row_a_neighbour(values: torch.Tensor, neighbours: int) -> np.ndarray:
    return np.repeat(values.numpy()[:, None], neighbours, axis=1)


def _attention_tree(
    config: AttentionDescriptorConfig, held: AttentionDescriptor, type_map: Sequence[str],
    precision: str,
) -> Tree:  # fmt: skip
    types, kind = len(type_map), "embedding_network"
    settings = {
        "embed_dim": config.embedding[-1], "hidden_dim": config.attention_width,
        "nnei": config.sel, "dotr": config.angular_gate, "do_mask": False,
        "scaling_factor": config.scaling, "normalize": config.normalize,
        "temperature": config.temperature, "precision": precision,
    }  # fmt: skip
    norm = {"trainable_ln": True, "ln_eps": config.norm_epsilon}
    out = {
        "type": "dpa1", "@version": 2, "ntypes": types, "axis_neuron": config.axis_neurons,
        "tebd_dim": config.type_width, "tebd_input_mode": config.type_input,
        "set_davg_zero": True, "attn": config.attention_width,
        "attn_layer": config.attention_layers, "attn_dotr": config.angular_gate,
        "attn_mask": False, "scaling_factor": config.scaling, "normalize": config.normalize,
        "temperature": config.temperature, **norm, "smooth_type_embedding": config.smooth,
        "concat_output_tebd": config.type_output, "use_econf_tebd": False, "use_tebd_bias": False,
        "embeddings": network_collection(held.embedding, kind, types, 0),
        "attention_layers": {
            "@class": "NeighborGatedAttention", "@version": 1, **settings, **norm,
            "layer_num": config.attention_layers,
            "attention_layers": [_layer_tree(each, settings, norm) for each in held.layers],
        },
        "type_embedding": _type_embedding_tree(held, type_map, precision),
    }  # fmt: skip
    if held.type_network is not None:
        out["embeddings_strip"] = network_collection(held.type_network, kind, types, 0)
    return out


def _layer_tree(layer: AttentionLayer, settings: Tree, norm: Tree) -> Tree:
    precision = settings["precision"]
    return {
        **settings, **norm,
        "attention_layer": {
            **settings, "num_heads": 1, "bias": True, "smooth": layer.config.smooth,
            "in_proj": _linear(layer.project, layer.project_bias, precision),
            "out_proj": _linear(layer.mix, layer.mix_bias, precision),
        },
        "attn_layer_norm": {
            "@class": "LayerNorm", "@version": 1, "eps": norm["ln_eps"], "trainable": True,
            "precision": precision,
            "@variables": {"w": layer.norm_weight.detach().numpy(),
                           "b": layer.norm_bias.detach().numpy()},
        },
    }  # fmt: skip


def _linear(
    weight: torch.Tensor, bias: torch.Tensor | None, precision: str, activation: str = "none"
) -> Tree:
    return {
        "@class": "Layer", "@version": 2, "bias": bias is not None, "use_timestep": False,
        "activation_function": activation, "resnet": activation != "none",
        "precision": precision, "trainable": True,
        "@variables": {
            "w": weight.detach().numpy(), "b": None if bias is None else bias.detach().numpy(),
            "idt": None,
        },
    }  # fmt: skip


def _type_embedding_tree(
    held: AttentionDescriptor, type_map: Sequence[str], precision: str
) -> Tree:
    table = held.type_embedding.detach()
    types, width = table.shape
    weight = table - torch.from_numpy(_shortcut(types, width)).to(table.dtype)
    same = {"resnet_dt": False, "precision": precision, "activation_function": "Linear"}
    return {
        "@class": "TypeEmbedNet", "@version": 2, "ntypes": types, "neuron": [width], **same,
        "trainable": True, "padding": True, "use_econf_tebd": False, "use_tebd_bias": False,
        "type_map": list(type_map),
        "embedding": {
            "@class": "EmbeddingNetwork", "@version": 2, "in_dim": types, "neuron": [width],
            **same, "bias": False, "layers": [_linear(weight, None, precision, "Linear")],
        },
    }  # fmt: skip
