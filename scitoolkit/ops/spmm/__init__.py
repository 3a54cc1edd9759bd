"""Sparse-dense products (SpMM) and sampled dense-dense products (SDDMM), differentiable."""

from scitoolkit.ops.spmm.matrix import SparseMatrix
from scitoolkit.ops.spmm.public import sddmm, spmm

__all__ = ["SparseMatrix", "sddmm", "spmm"]
