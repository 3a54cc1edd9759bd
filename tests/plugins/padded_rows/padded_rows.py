"""Sparse products over rows padded to the longest (ELLPACK): a gather and a sum, no scatter."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from scitoolkit.ops.codegen import KernelBackend
from scitoolkit.ops.spmm import SparseMatrix


class PaddedRows(KernelBackend):
    """ELLPACK sparse products in torch, for matrices whose rows have similar lengths."""

    name: ClassVar[str] = "padded_rows"
    devices: ClassVar[tuple[str, ...]] = ("cpu", "cuda")
    priority: ClassVar[int] = -1  # below the generated kernels: only where these cannot run


def places(matrix: SparseMatrix) -> tuple[Tensor, Tensor]:
    """Return the index of each row's nonzeros (rows, longest), and which of them exist."""
    start, end = matrix.pointer[:-1, None], matrix.pointer[1:, None]
    longest = int((end - start).max()) if len(start) else 0
    index = start + torch.arange(longest, device=start.device)
    return index.clamp(max=max(len(matrix.column) - 1, 0)), index < end


# Not traceable: the length of the longest row is a number that tracers do not know.
@PaddedRows.serve("spmm", traceable=False, transforms=True)
def spmm(matrix: SparseMatrix, x: Tensor) -> Tensor:
    """Return the product of a sparse matrix with x (columns, width)."""
    if not len(matrix.column):
        return x.sum() * x.new_zeros(matrix.num_rows, x.shape[1])
    index, exists = places(matrix)
    rows = x[matrix.column.long()[index]]
    if matrix.value is not None:
        rows = rows * matrix.value[index][..., None]
    return torch.where(exists[..., None], rows, 0).sum(1)
