"""The smooth-edition model on the fused kernels: one way for training, one for inference.

Training keeps autograd for the fitting nets and lets the kernels do the embedding. Inference goes
through the atoms type by type in chunks whose activations stay in the cache, with the fitting
nets' derivative written out, so that memory an atom does not grow with the system.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from scitoolkit.core.contracts import Batch
from scitoolkit.ops.environment_matrix import operators, reference
from scitoolkit.ops.environment_matrix.table import Table, tabulate
from scitoolkit.ops.fitting_network import FittingNetwork, FittingSpec
from scitoolkit.ops.fitting_network import available as fitting_available
from scitoolkit.potentials.networks import linear_output

if TYPE_CHECKING:
    from scitoolkit.potentials.se_e2_a import SmoothEdition

CHUNK = 96  # atoms whose activations are held at once in inference
TABLE_CHUNK = 576  # likewise with a table, which keeps none


def kernels_available(model: SmoothEdition, vectors: Tensor) -> bool:
    """Return whether the fused kernels can be used for these vectors."""
    return (
        vectors.device.type == "cpu"
        and not model.embedding.step
        and operators.available(model.spec, vectors.dtype)
        and fitting_available(_fitting_spec(model), vectors.dtype)
    )


def _fitting_spec(model: SmoothEdition) -> FittingSpec:
    config = model.config
    return FittingSpec(config.embedding[-1], config.axis_neurons, tuple(config.fitting))


def _weights(model: SmoothEdition) -> Tensor:
    stack = model.embedding
    return operators.flat_weights(list(zip(stack.weight, stack.bias, strict=True)))


def _absent(model: SmoothEdition) -> Tensor:
    """Return what one absent neighbour of each type adds to T, (type, type, M, 4)."""
    networks = model.embedding.networks()
    mean, deviation = model.mean.to(model.dtype), model.deviation.to(model.dtype)
    return reference.absent_rows(model.spec, mean, deviation, networks) / sum(model.spec.sel)


@dataclass(frozen=True)
class Constants:
    """The embedding's weights as the kernels take them, absent neighbours' part, the table.

    `fitting` has the network of each type.
    """

    weights: Tensor
    absent: Tensor
    table: Table | None
    fitting: list[FittingNetwork]


@torch.no_grad()
def kernel_constants(model: SmoothEdition, compression: dict[str, float] | None) -> Constants:
    """Return what does not depend on the graph, with a table when it is asked for."""
    weights, table = _weights(model), None
    if compression is not None:
        table = tabulate(
            model.spec, model.embedding.networks(), weights, model.mean, model.deviation,
            **compression,
        )  # fmt: skip
    spec = _fitting_spec(model)
    fitting = [FittingNetwork(spec, layers) for layers in model.fitting.networks()]
    return Constants(weights, _absent(model), table, fitting)


def _absent_numbers(model: SmoothEdition, graph: Batch) -> Tensor:
    counts = graph["segments"].diff().view(-1, model.spec.num_types)
    return (torch.tensor(model.spec.sel) - counts).to(model.dtype)


def _environment(
    model: SmoothEdition, graph: Batch, vectors: Tensor, atoms: Tensor
) -> operators.Environment:
    return operators.Environment(
        model.spec, atoms, graph["segments"], graph["types"], vectors,
        model.mean.to(model.dtype), model.deviation.to(model.dtype), model.training,
    )  # fmt: skip


def trained_edge_gradients(
    model: SmoothEdition, graph: Batch, vectors: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what `edge_gradients` promises, differentiable in all parameters."""
    types = graph["types"]
    order = types.argsort(stable=True)
    counts = torch.bincount(types, minlength=len(model.type_map)).tolist()
    numbers = _absent_numbers(model, graph)[order].split(counts)
    with torch.enable_grad():
        environment = _environment(model, graph, vectors, order)
        moments = operators.moments(_weights(model), environment)
        absent = _absent(model).unbind()
        parts, energies = moments.split(counts), []
        for kind, layers in enumerate(model.fitting.networks()):
            whole = parts[kind].flatten(1) + numbers[kind] @ absent[kind].flatten(1)
            descriptor = model.descriptor(whole.view_as(parts[kind]))
            energies.append(linear_output(layers, descriptor))
        (cotangent,) = torch.autograd.grad(torch.cat(energies).sum(), moments, create_graph=True)
        atomic = torch.zeros_like(model.shift[types]).index_add(
            0, order, torch.cat(energies).double()
        )
        gradient = operators.edge_gradients(cotangent, environment)
        return atomic + model.shift[types], vectors, gradient


@torch.no_grad()
def inferred_edge_gradients(
    model: SmoothEdition, graph: Batch, vectors: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return what `edge_gradients` promises, without a graph of derivatives."""
    types = graph["types"]
    constants = model.constants()
    absent, table, segments = constants.absent, constants.table, graph["segments"]
    numbers = _absent_numbers(model, graph)
    atomic = model.shift[types]
    gradient = torch.empty_like(vectors)
    chunk = CHUNK if table is None else TABLE_CHUNK
    for kind, fitting in enumerate(constants.fitting):
        chosen = (types == kind).nonzero().squeeze(1)
        for atoms in chosen.split(chunk) if len(chosen) else ():
            if table is None:
                environment = _environment(model, graph, vectors, atoms)
                moments = environment.moments(constants.weights)
            else:
                moments = table.moments(atoms, segments, types, vectors)
            flat = moments.flatten(1)
            flat.addmm_(numbers[atoms], absent[kind].flatten(1))
            energy, cotangent = fitting(moments)
            atomic[atoms] += energy.double()
            if table is None:
                environment.edge_gradients(cotangent, gradient)
            else:
                table.edge_gradients(atoms, segments, types, vectors, cotangent, gradient)
    return atomic, vectors, gradient
