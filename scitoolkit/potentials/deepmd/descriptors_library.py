"""Export of Deep Potentials with any descriptors: the constants and arrays of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from scitoolkit.ops.environment_matrix.reference import RADIAL_FACTOR, Layer
from scitoolkit.ops.neighbour_attention import cpu as attention
from scitoolkit.potentials.deepmd.descriptors.base import Descriptor
from scitoolkit.potentials.deepmd.descriptors.environment import PairDescriptor
from scitoolkit.potentials.deepmd.descriptors.fields import TypePair
from scitoolkit.potentials.deepmd.descriptors.se_atten import SeAttenDescriptor
from scitoolkit.potentials.deepmd.descriptors.se_e2_a import SeE2ADescriptor
from scitoolkit.potentials.export.source import Kernel, LibrarySource, refuse

if TYPE_CHECKING:
    from scitoolkit.potentials.deepmd.model import DeepPotential

AnyDescriptor = PairDescriptor | SeAttenDescriptor
MOST_LAYERS = 8
CALLED = {
    "kept_rows": "stk_kept_rows",
    "moments": "stk_attention",
    "slopes": "stk_attention_back",
}


@torch.no_grad()
def descriptors_library(model: DeepPotential, name: str) -> LibrarySource:
    """Return the library source of a Deep Potential of any descriptors.

    Args:
        model: without external parameters.
        name: of the model, for messages.

    Raises:
        ConfigError: the library has no kernels for a descriptor or an option.
    """
    source = LibrarySource("descriptors.c", model.type_map, model.cutoff, model.dtype)
    types = len(model.type_map)
    descriptors = [_known(part, name) for part in model.descriptors]
    rows = [_add(source, number, part, types, name) for number, part in enumerate(descriptors)]
    source.files["descriptors.h"] = _header(rows)
    networks = model.fitting.networks()
    flat = [flat_network(layers) for layers in networks]
    inputs, widths = len(networks[0][0][0]), list(model.fitting.widths)
    embeddings = [width for descriptor in descriptors for width in descriptor.config.embedding]
    source.settings = {
        "STK_DESCRIPTORS": len(rows),
        "STK_RADIAL_FACTOR": RADIAL_FACTOR,
        "STK_WIDEST": max(embeddings),
        "STK_INPUTS": inputs,
        "STK_HIDDEN_TOTAL": sum(widths),
        "STK_WIDEST_FITTING": max(inputs, *widths),
        "STK_ONE_FITTING": int(len(networks) == 1),
        "STK_FITTING": len(flat[0]),
    }
    source.files["descriptors.h"] += f"#define STK_FITTING_WIDTHS {', '.join(map(str, widths))}\n"
    source.add_double(shift=model.shift)
    source.add(fitting=torch.stack(flat))
    return source


def flat_network(layers: Sequence[Layer]) -> Tensor:
    """Return the parameters of a network: weights (in, out), bias and step of each layer.

    The linear output, if any, is a layer whose step is not used.
    """
    parts = [
        (weight, bias, torch.ones_like(bias) if step is None else step)
        for weight, bias, step in layers
    ]
    return torch.cat([part.flatten() for layer in parts for part in layer])


def excluded_pairs(pairs: Sequence[TypePair], num_types: int) -> Tensor:
    """Return a (T, T) mask with 1 for excluded pairs of types."""
    banned = torch.zeros(num_types, num_types)
    for one, other in pairs:
        banned[one, other] = banned[other, one] = 1
    return banned


def _known(descriptor: Descriptor, name: str) -> AnyDescriptor:
    refuse({f"a {type(descriptor).__name__}": not isinstance(descriptor, AnyDescriptor)}, name)
    assert isinstance(descriptor, AnyDescriptor)
    return descriptor


def _add(
    source: LibrarySource, number: int, descriptor: AnyDescriptor, num_types: int, name: str
) -> dict[str, str]:
    """Add the arrays and kernels of a descriptor; return its entries in descriptors.h."""
    config = descriptor.config
    source.add(**{f"excluded{number}": excluded_pairs(config.exclude_types, num_types)})
    common = {
        "basis": str(config.embedding[-1]),
        "cutoff": repr(float(descriptor.cutoff)),
        "cutoff_smooth": repr(float(config.cutoff_smooth)),
        "one_side": str(int(config.type_one_side)),
        "excluded": f"STK_ARRAY_excluded{number}",
    }
    if isinstance(descriptor, SeAttenDescriptor):
        return common | _add_attention(source, number, descriptor, name)
    return common | _add_pairs(source, number, descriptor, name)


def _add_pairs(
    source: LibrarySource, number: int, descriptor: PairDescriptor, name: str
) -> dict[str, str]:
    spec, networks = descriptor.spec, descriptor.embedding.networks()
    too_deep = f"an embedding of over {MOST_LAYERS} layers"
    refuse({too_deep: len(spec.widths) > MOST_LAYERS}, name)
    mean, deviation = descriptor.statistics()
    flat = torch.stack([flat_network(layers) for layers in networks])
    arrays = {
        "mean": mean,
        "deviation": deviation,
        "embedding": flat,
        "absent": descriptor.absent(),
        "empty": descriptor.empty(),
        "sel": torch.tensor(spec.sel),
    }
    source.add(**{f"{key}{number}": value for key, value in arrays.items()})
    axis = descriptor.config.axis_neurons if isinstance(descriptor, SeE2ADescriptor) else 0
    return {
        "axis": str(axis),
        "columns": str(spec.columns),
        "embedding_layers": str(len(spec.widths)),
        "widths": f"{{{', '.join(map(str, spec.widths))}}}",
        "network": str(flat.shape[1]),
        "sel_sum": str(sum(spec.sel)),
        **{key: f"STK_ARRAY_{key}{number}" for key in arrays},
    }


def _add_attention(
    source: LibrarySource, number: int, descriptor: SeAttenDescriptor, name: str
) -> dict[str, str]:
    config, spec = descriptor.config, descriptor.attention
    reasons = [descriptor.without_kernels(), attention.refusal(spec)]
    refuse({reason: True for reason in reasons if reason}, name)
    unit = f"attention{number}"
    source.kernels[unit] = Kernel(attention.generate(spec.widths, source.real))
    packed = attention.pack(spec, descriptor.weights())
    arrays = {
        "deviation": packed.deviation,
        "embedding": packed.embedding,
        "first_bias": packed.first_bias,
        "factors": packed.factors,
        "numbers": packed.numbers,
        "attention": packed.layers,
    }
    if config.type_output:
        arrays["of_type"] = descriptor.type_embedding
    source.add(**{f"{key}{number}": value for key, value in arrays.items()})
    return {
        "axis": str(config.axis_neurons),
        "columns": "4",
        "constant": str(config.type_width if config.type_output else 0),
        "whole": f"{{{', '.join(map(str, packed.whole.tolist()))}}}",
        "kept_rows": f"STK_OF({unit}_kept_rows)",
        "moments": f"STK_OF({unit}_attention_moments)",
        "slopes": f"STK_OF({unit}_attention_slopes)",
        **{key: f"STK_ARRAY_{key}{number}" for key in arrays},
    }


def _header(rows: Sequence[dict[str, str]]) -> str:
    declared = [f"{kind} {row[key]};" for row in rows for key, kind in CALLED.items() if key in row]
    entries = ["  {" + ", ".join(f".{k} = {v}" for k, v in row.items()) + "}," for row in rows]
    return "\n".join(
        [
            "/* The descriptors of the model. */",
            *declared,
            "static const stk_descriptor DESCRIPTORS[] = {",
            *entries,
            "};",
            "",
        ]
    )
