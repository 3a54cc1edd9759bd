"""The fused convolution inside other packages' models: `make peers`, then each peer's pytest."""

import contextlib

import pytest
import torch

from scitoolkit.core.errors import DataError
from scitoolkit.ops.tensor_product import (
    TensorProductConvolution,
    TensorProductScatter,
    channelwise_instructions,
)

with contextlib.suppress(ImportError):
    import mace  # noqa: F401  sets what e3nn 0.4, which it pins, needs to load its constants

o3 = pytest.importorskip("e3nn.o3")
pytestmark = [
    pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The TorchScript type system:UserWarning"),
]


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
    blocks = pytest.importorskip("mace.modules.blocks")  # make test-peers
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


def test_replaces_the_convolution_of_nequip():
    nequip = pytest.importorskip("nequip.nn")  # make test-peers
    model, data = nequip_model(), nequip_data()
    names, want = model.state_dict().keys(), energies_forces_gradients(model, data)
    for block in model.modules():
        if isinstance(block, nequip.InteractionBlock):
            block.tp_scatter = TensorProductScatter(block.tp_scatter.tp, backend="cpu")
    assert model.state_dict().keys() == names
    for got, expected in zip(energies_forces_gradients(model, data), want, strict=True):
        assert (got - expected).norm() <= 1e-10 * expected.norm()
    assert all(expected.norm() > 0 for expected in want)


def nequip_model():
    from nequip.model import NequIPGNNModel
    from nequip.utils import torch_default_dtype
    from nequip.utils.global_state import set_global_state

    with torch_default_dtype(torch.float32):  # restores what the next call sets
        set_global_state()
    return NequIPGNNModel(
        seed=1,
        model_dtype="float64",
        r_max=4.0,
        type_names=["H", "O"],
        num_layers=3,
        l_max=2,
        num_features=4,
        avg_num_neighbors=12.0,
        per_type_energy_scales=1.0,
        per_type_energy_shifts=0.0,
    )


def nequip_data():
    """Two periodic frames of 12 atoms, less some edges.

    With both directions of every edge, a mirror image hides exchanged senders and receivers.
    """
    from nequip.data import AtomicDataDict, compute_neighborlist_

    generator, frames = torch.Generator().manual_seed(0), []
    for _ in range(2):
        frame = {
            "pos": 6 * torch.rand(12, 3, dtype=torch.float64, generator=generator),
            "cell": 6 * torch.eye(3, dtype=torch.float64)[None],
            "pbc": torch.ones(1, 3, dtype=torch.bool),
            "atom_types": torch.arange(12) % 2,
        }
        frame = compute_neighborlist_(frame, 4.0)
        frame["edge_index"] = frame["edge_index"][:, 20:]
        frame["edge_cell_shift"] = frame["edge_cell_shift"][20:]
        frames.append(frame)
    return AtomicDataDict.batched_from_list(frames)


def energies_forces_gradients(model, data):
    """Energies, forces, stresses, and the gradients of a loss of all three."""
    out = model({name: value.clone() for name, value in data.items()})
    results = [out["total_energy"], out["forces"], out["stress"]]
    gradients = torch.autograd.grad(
        sum(each.square().mean() for each in results), list(model.parameters())
    )
    return [each.detach() for each in (*results, *gradients)]
