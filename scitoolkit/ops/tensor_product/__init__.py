"""Equivariant tensor products and their graph convolution with generated kernels."""

from scitoolkit.ops.tensor_product.drop_in import TensorProductConvolution, TensorProductScatter
from scitoolkit.ops.tensor_product.edges import Edges
from scitoolkit.ops.tensor_product.public import (
    TensorProduct,
    change_layout,
    tensor_product_convolution,
)
from scitoolkit.ops.tensor_product.radial import radial_convolution
from scitoolkit.ops.tensor_product.spec import TensorProductSpec, channelwise_instructions
from scitoolkit.ops.tensor_product.tabulated import tabulated_convolution

__all__ = [
    "Edges",
    "TensorProduct",
    "TensorProductConvolution",
    "TensorProductScatter",
    "TensorProductSpec",
    "change_layout",
    "channelwise_instructions",
    "radial_convolution",
    "tabulated_convolution",
    "tensor_product_convolution",
]
