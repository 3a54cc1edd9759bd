"""Export of Deep Potentials as C libraries: supported models, kernels and weights."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from scitoolkit.ops.environment_matrix import cpu as environment
from scitoolkit.ops.fitting_network import cpu as fitting
from scitoolkit.ops.fitting_network.operators import flat_parameters, refusal
from scitoolkit.potentials.deepmd.descriptors.se_e2_a import SeE2ADescriptor
from scitoolkit.potentials.deepmd.descriptors_library import descriptors_library, excluded_pairs
from scitoolkit.potentials.export.source import Kernel, LibrarySource, refuse
from scitoolkit.potentials.graph import PARAMETERS

if TYPE_CHECKING:
    from scitoolkit.potentials.deepmd.model import DeepPotential


@torch.no_grad()
def deep_potential_library(model: DeepPotential) -> LibrarySource:
    """Return the library source of a Deep Potential, with tables if it was compressed.

    A single se_e2_a has fused kernels; other descriptors run through `descriptors_library`.

    Raises:
        ConfigError: the library has no kernels for a descriptor or an option.
    """
    parameters = {name: getattr(model.config, name) > 0 for name in PARAMETERS}
    refuse(parameters, _name(model))
    (first, *others) = model.descriptors
    if others or not isinstance(first, SeE2ADescriptor) or _without_kernels(model, first):
        tabulated = any(
            isinstance(e, SeE2ADescriptor) and e.is_tabulated for e in model.descriptors
        )
        refuse({"several descriptors or time steps, and tables,": tabulated}, _name(model))
        return descriptors_library(model, _name(model))
    return _fused_library(model, first)


def _without_kernels(model: DeepPotential, descriptor: SeE2ADescriptor) -> bool:
    """Return whether an option of a single se_e2_a has no fused kernels."""
    fitting_spec = descriptor.fused_fitting(model.fitting.widths)
    if fitting_spec is None or descriptor.embedding.step:
        return True
    return bool(environment.refusal(descriptor.spec) or refusal(fitting_spec))


def _fused_library(model: DeepPotential, descriptor: SeE2ADescriptor) -> LibrarySource:
    spec, constants = descriptor.spec, descriptor.constants()
    fitting_spec = descriptor.fused_fitting(model.fitting.widths)
    assert fitting_spec is not None
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
        excluded=excluded_pairs(descriptor.config.exclude_types, spec.num_types),
        fitting=torch.stack(networks),
    )
    if table is not None:
        source.add(table=table.values, table_range=table.range)
    return source


def _name(model: DeepPotential) -> str:
    return f"a Deep Potential ({model.config.name})"
