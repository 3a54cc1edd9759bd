"""Export of Deep Potentials as C libraries: supported models, kernels and weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from scitoolkit.ops.environment_matrix import cpu as environment
from scitoolkit.ops.fitting_network import cpu as fitting
from scitoolkit.ops.fitting_network.operators import flat_parameters, refusal
from scitoolkit.potentials.deepmd.descriptors.se_e2_a import SeE2ADescriptor
from scitoolkit.potentials.export.source import Kernel, LibrarySource, refuse

if TYPE_CHECKING:
    from scitoolkit.potentials.deepmd.model import DeepPotential


@torch.no_grad()
def deep_potential_library(model: DeepPotential) -> LibrarySource:
    """Return the library source of a Deep Potential, with tables if it was compressed.

    Raises:
        ConfigError: the library has no kernels for a descriptor or an option.
    """
    descriptor = _descriptor(model)
    spec, constants = descriptor.spec, descriptor.constants()
    fitting_spec = descriptor.fused_fitting(model.fitting.widths)
    assert fitting_spec is not None
    refuse({reason: True for reason in [refusal(fitting_spec)] if reason}, _name(model))
    source = LibrarySource("deep_potential.c", model.type_map, model.cutoff, model.dtype)
    source.kernels = {
        "environment": Kernel(environment.generate(spec, source.real, training=False)),
        "fitting": Kernel(fitting.generate(fitting_spec, source.real)),
    }
    networks = [flat_parameters(fitting_spec, layers) for layers in model.fitting.networks()]
    table = constants.table
    source.settings = {
        "STK_BASIS": spec.widths[-1],
        "STK_SLOTS": sum(spec.sel),
        "STK_NETWORKS": len(networks),
        "STK_ONE_FITTING": int(len(networks) == 1),
        "STK_FITTING": len(networks[0]),
        "STK_TABLE": 0 if table is None else table.values.shape[1],
    }
    mean, deviation = descriptor.statistics()
    source.add_double(shift=model.shift)
    source.add(
        mean=mean,
        deviation=deviation,
        embedding=constants.weights,
        absent=constants.absent,
        empty=constants.empty,
        sel=torch.tensor(spec.sel),
        excluded=_excluded(descriptor),
        fitting=torch.stack(networks),
    )
    if table is not None:
        source.add(table=table.values, table_range=table.range)
    return source


def _descriptor(model: DeepPotential) -> SeE2ADescriptor:
    given, first = model.config, model.descriptors[0]
    refuse(
        {
            "several descriptors": len(model.descriptors) > 1,
            f"the descriptor {given.descriptor_configs[0].name}": not isinstance(
                first, SeE2ADescriptor
            ),
            "frame_parameters": given.frame_parameters > 0,
            "atom_parameters": given.atom_parameters > 0,
        },
        _name(model),
    )
    assert isinstance(first, SeE2ADescriptor)
    reason = environment.refusal(first.spec)
    refuse({"embedding_resnet_dt": bool(first.embedding.step), reason: bool(reason)}, _name(model))
    return first


def _excluded(descriptor: SeE2ADescriptor) -> Tensor:
    """Return a (T, T) mask with 1 for excluded pairs of types."""
    banned = torch.zeros(descriptor.spec.num_types, descriptor.spec.num_types)
    for one, other in descriptor.config.exclude_types:
        banned[one, other] = banned[other, one] = 1
    return banned


def _name(model: DeepPotential) -> str:
    return f"a Deep Potential ({model.config.name})"
