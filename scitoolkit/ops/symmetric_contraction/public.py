"""Public function of the symmetric contraction of MACE."""

from __future__ import annotations

import torch
from torch import Tensor

from scitoolkit.core.errors import DataError
from scitoolkit.ops.codegen import GeneratedC, Operation, Triton, check_tensor
from scitoolkit.ops.symmetric_contraction import operators, reference, triton_launch
from scitoolkit.ops.symmetric_contraction.spec import ContractionSpec


@torch.compiler.assume_constant_result
def _text(spec: ContractionSpec) -> str:
    return spec.to_json()


def _check(spec: ContractionSpec, x: Tensor, weight: Tensor, species: Tensor) -> None:
    check_tensor("x", x, ("N", spec.dim_in, "C"), x)
    check_tensor("weight", weight, ("E", spec.num_paths, x.shape[2]), x)
    if not isinstance(species, Tensor) or species.dtype not in (torch.int64, torch.int32):
        actual = species.dtype if isinstance(species, Tensor) else type(species)
        raise DataError(f"expected species as an integer tensor, got {actual}")
    if tuple(species.shape) != (x.shape[0],):
        raise DataError(f"expected species of shape {(x.shape[0],)}, got {tuple(species.shape)}")
    if species.numel() and not torch.compiler.is_compiling():
        low, high = (int(bound) for bound in species.aminmax())
        if low < 0 or high >= weight.shape[0]:
            raise DataError(
                f"species contains element {low if low < 0 else high}",
                allowed=f"0 to {weight.shape[0] - 1}, as weight has {weight.shape[0]} elements",
            )


def _reference(x: Tensor, weight: Tensor, species: Tensor, spec: ContractionSpec) -> Tensor:
    return reference.symmetric_contraction(spec, x, weight, species.long())


OPERATION = Operation(
    "symmetric_contraction",
    "weighted symmetric powers of node features (MACE)",
    _reference,
    examples="scitoolkit.ops.symmetric_contraction.examples:examples",
)


@GeneratedC.serve(OPERATION.name, prepare=operators.kernels, source=operators.source)
def _on_cpu(x: Tensor, weight: Tensor, species: Tensor, spec: ContractionSpec) -> Tensor:
    by_element = _by_element(weight, species)
    text = _text(spec)
    return operators.forward(x.contiguous(), weight.contiguous(), *by_element, text)


@Triton.serve(OPERATION.name, prepare=triton_launch.prepare)
def _on_gpu(x: Tensor, weight: Tensor, species: Tensor, spec: ContractionSpec) -> Tensor:
    by_element = _by_element(weight, species)
    return operators.contraction_on_gpu(
        x.contiguous(), weight.contiguous(), *by_element, _text(spec)
    )


def _by_element(weight: Tensor, species: Tensor) -> tuple[Tensor, Tensor]:
    """Return the start of each element's nodes in the order by element, and that order."""
    species = species.long()
    order = torch.argsort(species, stable=True)
    elements = torch.arange(weight.shape[0] + 1, device=weight.device)
    return torch.searchsorted(species[order], elements), order


def symmetric_contraction(
    spec: ContractionSpec,
    x: Tensor,
    weight: Tensor,
    species: Tensor,
    *,
    backend: str = "auto",
) -> Tensor:
    """Symmetric contraction of MACE: weighted symmetric powers of each node's features.

    Twice differentiable in x and weight. Bit-identical for any number of threads.

    Args:
        spec: irreps and correlation.
        x: features, shape (N, dim_in, C), float32 or float64: C channels in the ir_mul layout.
        weight: shape (E, num_paths, C), with blocks in the order of `spec.blocks`.
        species: element of each node, 0..E-1, shape (N,), int32 or int64.
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
        >>> spec = ContractionSpec.build("0e + 1o", "0e", 2)
        >>> x, weight = torch.ones(3, 4, 8), torch.ones(2, spec.num_paths, 8)
        >>> symmetric_contraction(spec, x, weight, torch.tensor([0, 1, 0])).shape
        torch.Size([3, 1, 8])
    """
    _check(spec, x, weight, species)
    text = _text(spec)
    return OPERATION.choose(text, x, backend)(x, weight, species, spec)
