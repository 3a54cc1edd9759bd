"""The public function: checked once at the boundary, then the best backend there is."""

from __future__ import annotations

import torch
from torch import Tensor

from scitoolkit.core.errors import DataError
from scitoolkit.ops.codegen import check_tensor, choose_backend
from scitoolkit.ops.symmetric_contraction import operators, reference
from scitoolkit.ops.symmetric_contraction.spec import ContractionSpec


def _check(spec: ContractionSpec, x: Tensor, weight: Tensor, species: Tensor) -> None:
    check_tensor("x", x, ("N", spec.dim_in, "C"), x)
    check_tensor("weight", weight, ("E", spec.num_paths, x.shape[2]), x)
    if not isinstance(species, Tensor) or species.dtype not in (torch.int64, torch.int32):
        given = species.dtype if isinstance(species, Tensor) else type(species)
        raise DataError(f"expected species as an integer tensor, got {given}")
    if tuple(species.shape) != (x.shape[0],):
        raise DataError(f"expected species of shape {(x.shape[0],)}, got {tuple(species.shape)}")
    if species.numel() and not torch.compiler.is_compiling():
        low, high = (int(each) for each in species.aminmax())
        if low < 0 or high >= weight.shape[0]:
            raise DataError(
                f"species holds element {low if low < 0 else high}",
                allowed=f"0 to {weight.shape[0] - 1}, as weight has {weight.shape[0]} elements",
            )


@torch.compiler.assume_constant_result
def _text(spec: ContractionSpec) -> str:
    return spec.to_json()


def symmetric_contraction(
    spec: ContractionSpec,
    x: Tensor,
    weight: Tensor,
    species: Tensor,
    *,
    backend: str = "auto",
) -> Tensor:
    """Return MACE's many-body product: weighted symmetric powers of each node's features.

    Twice differentiable in x and weight; deterministic for any number of threads.

    Args:
        spec: irreps and correlation.
        x: features, shape (N, dim_in, C), float32 or float64: the ir_mul layout of C copies.
        weight: shape (E, num_paths, C), blocks in the order of `spec.blocks`.
        species: element of each node, 0..E-1, shape (N,), integer.
        backend: auto (the kernel of the tensors' device if it can run, else the reference, said
            once), cpu, triton or reference.

    Returns:
        Features, shape (N, dim_out, C).

    Raises:
        DataError: a shape, dtype or element that does not fit.
        BackendError: backend cpu or triton is asked for and cannot run.

    Source: Batatia et al. 2022 (arXiv 2206.07697), equations 10 and 11.

    Example:
        >>> spec = ContractionSpec.build("0e + 1o", "0e", 2)
        >>> x, weight = torch.ones(3, 4, 8), torch.ones(2, spec.num_paths, 8)
        >>> symmetric_contraction(spec, x, weight, torch.tensor([0, 1, 0])).shape
        torch.Size([3, 1, 8])
    """
    _check(spec, x, weight, species)
    text = _text(spec)
    chosen = choose_backend("symmetric contraction", text, x, backend)
    if chosen == "reference":
        return reference.symmetric_contraction(spec, x, weight, species.long())
    species = species.long()
    order = torch.argsort(species, stable=True)
    elements = torch.arange(weight.shape[0] + 1, device=x.device)
    ptr = torch.searchsorted(species[order], elements)
    run = operators.forward if chosen == "cpu" else operators.contraction_on_gpu
    return run(x.contiguous(), weight.contiguous(), ptr, order, text)
