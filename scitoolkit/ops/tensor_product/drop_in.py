"""The fused convolution in the place of another package's tensor product."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from scitoolkit.core.errors import DataError
from scitoolkit.ops.tensor_product.edges import Edges
from scitoolkit.ops.tensor_product.public import change_layout, tensor_product_convolution
from scitoolkit.ops.tensor_product.spec import TensorProductSpec


class TensorProductConvolution(nn.Module):
    """Gather, tensor product and scatter, called with `edge_index` and rows in e3nn's layout.

    mace-torch calls its fused kernels in this way: set `block.conv_tp` to this module, made from
    the old one, and `block.conv_fusion = True`. Inside a model of your own, keep the ir_mul layout
    and one `Edges` per neighbour list, and call `tensor_product_convolution`.

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
        """Take irreps, instructions and path weights of an `e3nn.o3.TensorProduct`."""
        return cls(TensorProductSpec.from_e3nn(module), backend)

    def forward(self, x: Tensor, y: Tensor, weight: Tensor, edge_index: Tensor) -> Tensor:
        """Return node features, shape (N, dim_out).

        Args:
            x: node features, shape (N, dim_in1), mul_ir layout.
            y: edge attributes, shape (E, dim_in2), mul_ir layout.
            weight: shape (E, weight_numel).
            edge_index: senders and receivers, shape (2, E).
        """
        if edge_index.ndim != 2 or edge_index.shape[0] != 2:
            raise DataError(f"expected edge_index of shape (2, E), got {tuple(edge_index.shape)}")
        spec, edges = self.spec, Edges.build(edge_index[0], edge_index[1], x.shape[0])
        x, y = change_layout(x, spec.in1, "ir_mul"), change_layout(y, spec.in2, "ir_mul")
        out = tensor_product_convolution(spec, x, y, weight, edges, backend=self.backend)
        return change_layout(out, spec.out, "mul_ir")


class TensorProductScatter(nn.Module):
    """Gather, tensor product and scatter, called as NequIP calls its module of this name.

    Set `block.tp_scatter` of NequIP's interaction blocks to this module, made from the old one's
    `tp`. The state dict stays the same, so checkpoints load with and without it. For eager mode:
    neither TorchScript nor NequIP's `compile_mode: compile` takes it.

    Args:
        tp: the `e3nn.o3.TensorProduct` to replace; kept, because NequIP asks it for `weight_numel`
            and its buffers belong to the state dict.
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
        """Return node features, shape (N, dim_out).

        Args:
            x: node features, shape (N, dim_in1), mul_ir layout.
            edge_attr: shape (E, dim_in2), mul_ir layout.
            edge_weight: shape (E, weight_numel).
            edge_dst: receivers, shape (E,).
            edge_src: senders, shape (E,).
        """
        return self.convolution(x, edge_attr, edge_weight, torch.stack((edge_src, edge_dst)))
