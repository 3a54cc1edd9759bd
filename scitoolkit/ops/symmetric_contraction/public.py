"""Public function of the symmetric contraction of MACE."""

from __future__ import annotations

from torch import Tensor

from scitoolkit.core.errors import DataError
from scitoolkit.ops.codegen import GeneratedC, Operation, Triton, check_tensor
from scitoolkit.ops.symmetric_contraction import operators, reference, triton_launch
from scitoolkit.ops.symmetric_contraction.elements import Elements
from scitoolkit.ops.symmetric_contraction.spec import ContractionSpec


def _nodes(
    spec: ContractionSpec, x: Tensor, weight: Tensor, species: Tensor | Elements
) -> Elements:
    """Return the nodes by element after checking all arguments."""
    check_tensor("x", x, ("N", spec.dim_in, "C"), x)
    check_tensor("weight", weight, ("E", spec.num_paths, x.shape[2]), x)
    nodes = species if isinstance(species, Elements) else None
    if nodes is None:
        nodes = Elements.build(species, weight.shape[0])  # type: ignore[arg-type]
    if nodes.species.shape != (x.shape[0],):
        shape = tuple(nodes.species.shape)
        raise DataError(f"expected species of shape {(x.shape[0],)}, got {shape}")
    if nodes.num_elements != weight.shape[0]:
        raise DataError(f"nodes of {nodes.num_elements} elements with weights of {weight.shape[0]}")
    return nodes


def _reference(x: Tensor, weight: Tensor, nodes: Elements, spec: ContractionSpec) -> Tensor:
    return reference.symmetric_contraction(spec, x, weight, nodes.species)


OPERATION = Operation(
    "symmetric_contraction",
    "weighted symmetric powers of node features (MACE)",
    _reference,
    examples="scitoolkit.ops.symmetric_contraction.examples:examples",
)


@GeneratedC.serve(OPERATION.name, prepare=operators.kernels, source=operators.source)
def _on_cpu(x: Tensor, weight: Tensor, nodes: Elements, spec: ContractionSpec) -> Tensor:
    order = nodes.ptr, nodes.order
    return operators.forward(x.contiguous(), weight.contiguous(), *order, spec.text)


@Triton.serve(OPERATION.name, prepare=triton_launch.prepare)
def _on_gpu(x: Tensor, weight: Tensor, nodes: Elements, spec: ContractionSpec) -> Tensor:
    order = nodes.ptr, nodes.order
    return operators.contraction_on_gpu(x.contiguous(), weight.contiguous(), *order, spec.text)


def symmetric_contraction(
    spec: ContractionSpec,
    x: Tensor,
    weight: Tensor,
    species: Tensor | Elements,
    *,
    backend: str = "auto",
) -> Tensor:
    """Symmetric contraction of MACE: weighted symmetric powers of each node's features.

    Twice differentiable in x and weight. Bit-identical for any number of threads.

    Args:
        spec: irreps and correlation.
        x: features, shape (N, dim_in, C), float32 or float64: C channels in the ir_mul layout.
        weight: shape (E, num_paths, C), with blocks in the order of `spec.blocks`.
        species: element of each node, 0..E-1, shape (N,), int32 or int64; or `Elements`, which
            are checked and sorted once for several calls.
        backend: auto (the kernel for the tensors' device if it can run, else the reference, with
            one warning), cpu, triton, reference, or the name of an installed kernel backend.

    Returns:
        Features, shape (N, dim_out, C).

    Raises:
        DataError: a shape or dtype that does not match, or an element out of range.
        ConfigError: an unknown backend.
        BackendError: the named backend cannot run.

    Source: Batatia et al. 2022 (arXiv 2206.07697), equations 10 and 11.

    Example:
        >>> import torch
        >>> spec = ContractionSpec.build("0e + 1o", "0e", 2)
        >>> x, weight = torch.ones(3, 4, 8), torch.ones(2, spec.num_paths, 8)
        >>> symmetric_contraction(spec, x, weight, torch.tensor([0, 1, 0])).shape
        torch.Size([3, 1, 8])
    """
    nodes = _nodes(spec, x, weight, species)
    return OPERATION.choose(spec.text, x, backend)(x, weight, nodes, spec)
