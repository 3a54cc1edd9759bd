"""Fused convolutions that replace the tensor products of mace-torch and NequIP."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scitoolkit.core.errors import DataError
from scitoolkit.ops.tensor_product.edges import Edges
from scitoolkit.ops.tensor_product.public import change_layout, tensor_product_convolution
from scitoolkit.ops.tensor_product.spec import TensorProductSpec


class TensorProductConvolution(nn.Module):
    """Fused gather, tensor product and scatter with the call signature of mace-torch.

    Replace `block.conv_tp` by this module, created from it with `from_e3nn`, and set
    `block.conv_fusion = True`. In new models use the ir_mul layout and one `Edges` per neighbour
    list, and call `tensor_product_convolution`.

    Args:
        spec: the tensor product.
        backend: see `tensor_product_convolution`.

    Example:
        >>> import torch
        >>> layer = TensorProductConvolution(TensorProductSpec.channelwise("4x0e", "0e", "0e"))
        >>> edge_index = torch.tensor([[0, 1], [1, 0]])
        >>> layer(torch.ones(2, 4), torch.ones(2, 1), torch.ones(2, 4), edge_index).shape
        torch.Size([2, 4])
    """

    def __init__(self, spec: TensorProductSpec, backend: str = "auto") -> None:
        super().__init__()
        self.spec: TensorProductSpec = spec
        self.backend: str = backend
        self.weight_numel: int = spec.weight_numel

    @classmethod
    def from_e3nn(cls, module: nn.Module, backend: str = "auto") -> TensorProductConvolution:
        """Return the module with the irreps, instructions and path weights of a tensor product.

        Args:
            module: an `e3nn.o3.TensorProduct`.
            backend: see `tensor_product_convolution`.
        """
        return cls(TensorProductSpec.from_e3nn(module), backend)

    def forward(self, x: Tensor, y: Tensor, weight: Tensor, edge_index: Tensor) -> Tensor:
        """Return node features, shape (N, dim_out), mul_ir layout.

        Args:
            x: node features, shape (N, dim_in1), float32 or float64, mul_ir layout.
            y: edge attributes, shape (E, dim_in2), mul_ir layout.
            weight: shape (E, weight_numel).
            edge_index: senders and receivers, shape (2, E), integer.

        Raises:
            DataError: a shape, dtype or index that does not match.
        """
        if edge_index.ndim != 2 or edge_index.shape[0] != 2:
            raise DataError(f"expected edge_index of shape (2, E), got {tuple(edge_index.shape)}")
        spec, edges = self.spec, Edges.build(edge_index[0], edge_index[1], x.shape[0])
        x, y = change_layout(x, spec.in1, "ir_mul"), change_layout(y, spec.in2, "ir_mul")
        out = tensor_product_convolution(spec, x, y, weight, edges, backend=self.backend)
        return change_layout(out, spec.out, "mul_ir")


class TensorProductScatter(nn.Module):
    """Fused gather, tensor product and scatter with the call signature of NequIP's module.

    Replace `block.tp_scatter` in NequIP's interaction blocks by this module, created from its
    `tp`. The state dict is unchanged, so checkpoints load with and without the replacement. For
    eager mode only: TorchScript and NequIP's `compile_mode: compile` are not supported.

    Args:
        tp: the `e3nn.o3.TensorProduct` to replace; it remains a submodule, because NequIP reads
            its `weight_numel` and its buffers are part of the state dict.
        backend: see `tensor_product_convolution`.

    Example:
        >>> from e3nn import o3
        >>> paths = [(0, 0, 0, "uvu", True)]
        >>> tp = o3.TensorProduct("4x0e", "0e", "4x0e", paths, shared_weights=False)
        >>> layer, index = TensorProductScatter(tp), torch.tensor([[0, 1], [1, 0]])
        >>> layer(torch.ones(2, 4), torch.ones(2, 1), torch.ones(2, 4), *index).shape
        torch.Size([2, 4])
    """

    def __init__(self, tp: nn.Module, backend: str = "auto") -> None:
        super().__init__()
        self.tp = tp
        self.convolution: TensorProductConvolution = TensorProductConvolution.from_e3nn(tp, backend)

    def forward(
        self, x: Tensor, edge_attr: Tensor, edge_weight: Tensor, edge_dst: Tensor, edge_src: Tensor
    ) -> Tensor:
        """Return node features, shape (N, dim_out), mul_ir layout.

        Args:
            x: node features, shape (N, dim_in1), mul_ir layout.
            edge_attr: edge attributes, shape (E, dim_in2), mul_ir layout.
            edge_weight: shape (E, weight_numel).
            edge_dst: receivers, shape (E,).
            edge_src: senders, shape (E,).
        """
        return self.convolution(x, edge_attr, edge_weight, torch.stack((edge_src, edge_dst)))
