"""The fused convolution inside other packages' models."""

import pytest
import torch

from scitoolkit.core.errors import DataError
from scitoolkit.ops.tensor_product import TensorProductConvolution, channelwise_instructions

o3 = pytest.importorskip("e3nn.o3")


def test_equals_gather_e3nn_scatter():
    irreps, instructions = channelwise_instructions("4x0e+4x1o", "0e+1o", "0e+1o")
    options = {"shared_weights": False, "internal_weights": False}
    peer = o3.TensorProduct("4x0e+4x1o", "0e+1o", irreps, instructions, **options)
    index = torch.tensor([[0, 1, 2, 2], [1, 0, 1, 0]])
    x, y, w = torch.randn(3, 16), torch.randn(4, 4), torch.randn(4, peer.weight_numel)
    layer = TensorProductConvolution.from_e3nn(peer, backend="cpu")
    want = torch.zeros(3, irreps.dim).index_add(0, index[1], peer(x[index[0]], y, w))
    torch.testing.assert_close(layer(x, y, w, index), want, rtol=1e-5, atol=1e-5)
    with pytest.raises(DataError, match="edge_index"):
        layer(x, y, w, index[0])


def test_replaces_the_convolution_of_mace():
    blocks = pytest.importorskip("mace.modules.blocks")
    block = blocks.RealAgnosticResidualInteractionBlock(
        node_attrs_irreps=o3.Irreps("2x0e"),
        node_feats_irreps=o3.Irreps("8x0e+8x1o"),
        edge_attrs_irreps=o3.Irreps("0e+1o+2e"),
        edge_feats_irreps=o3.Irreps("5x0e"),
        target_irreps=o3.Irreps("8x0e+8x1o+8x2e"),
        hidden_irreps=o3.Irreps("8x0e+8x1o"),
        avg_num_neighbors=3.0,
        radial_MLP=[16],
    )
    index = torch.randint(0, 6, (2, 20))
    inputs = [torch.randn(6, 2), torch.randn(6, 32), torch.randn(20, 9), torch.randn(20, 5)]
    want = block(*inputs, index)
    block.conv_tp = TensorProductConvolution.from_e3nn(block.conv_tp, backend="cpu")
    block.conv_fusion = True
    for got, expected in zip(block(*inputs, index), want, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
