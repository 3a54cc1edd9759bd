"""Sparse times dense, generated for the width, with the sampled product as its derivative."""

from scitoolkit.ops.spmm.matrix import SparseMatrix
from scitoolkit.ops.spmm.public import sddmm, spmm

__all__ = ["SparseMatrix", "sddmm", "spmm"]
