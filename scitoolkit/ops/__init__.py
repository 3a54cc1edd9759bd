"""Numerical operations with generated kernels, each with a readable reference implementation."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from scitoolkit.core.lazy import lazy_names, public_dir

if TYPE_CHECKING:
    from scitoolkit.ops.fitting_network import FittingNetwork as FittingNetwork
    from scitoolkit.ops.interpolation import piecewise_polynomial as piecewise_polynomial
    from scitoolkit.ops.neighbours import neighbour_list as neighbour_list
    from scitoolkit.ops.radial import radial_basis as radial_basis
    from scitoolkit.ops.spmm import SparseMatrix as SparseMatrix
    from scitoolkit.ops.spmm import sddmm as sddmm
    from scitoolkit.ops.tensor_product import Edges as Edges
    from scitoolkit.ops.tensor_product import TensorProduct as TensorProduct
    from scitoolkit.ops.tensor_product import TensorProductConvolution as TensorProductConvolution

_HOMES = {
    "Edges": "tensor_product",
    "FittingNetwork": "fitting_network",
    "SparseMatrix": "spmm",
    "TensorProduct": "tensor_product",
    "TensorProductConvolution": "tensor_product",
    "neighbour_list": "neighbours",
    "piecewise_polynomial": "interpolation",
    "radial_basis": "radial",
    "sddmm": "spmm",
}
__all__ = [*_HOMES]

__getattr__: Callable[[str], Any] = lazy_names(__name__, _HOMES)
__dir__: Callable[[], list[str]] = public_dir(globals())
