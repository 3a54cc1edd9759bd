"""First and last stages of large fields, slab by slab: what they return of the whole."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import nn

from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.emulator import build
from scitoolkit.emulation.models import slabwise as module
from scitoolkit.emulation.models.convnext import ConvNeXtUNet
from scitoolkit.emulation.models.layers import Conv, channels_to_space, space_to_channels
from scitoolkit.emulation.models.slabwise import slabwise
from scitoolkit.emulation.models.unet import UNet
from scitoolkit.emulation.normalized_network import Parted
from scitoolkit.emulation.spatial.slabs import Slabs
from scitoolkit.emulation.variables import Layout, Variable
from scitoolkit.testing.ranks import run_ranks
from scitoolkit.training.traffic import Traffic


def thin(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut fields of a few cells too."""
    monkeypatch.setattr(module, "THICKNESS", {1: 3, 2: 3, 3: 2})


class Counted(nn.Module):
    """Two convolutions that note the cells they were given."""

    def __init__(self, padding) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.Sequential(Conv(2, 3, padding), nn.GELU(), Conv(3, 2, padding)).double()
        self.shapes: list[tuple[int, ...]] = []

    def forward(self, x):
        self.shapes.append(tuple(x.shape[2:]))
        return self.layers(x)


@pytest.fixture(params=["unet", "convnext_unet", "resnet", "fno"])
def emulator(request):
    """An emulator of random weights, whose outputs are carried changes, and its inputs."""
    model = {"unet": {"widths": [8, 8]}, "convnext_unet": {"widths": [8, 8], "patch": 2}}
    config = EmulationConfig.model_validate(
        {
            "data": {"path": "none.nc", "inputs": ["u", "v"], "outputs": ["u", "v"]},
            "model": {"name": request.param, **model.get(request.param, {})},
            "boundary": {"x": "circular"},
            "transport": {"x": 2},
        }
    )
    fields = tuple(Variable(name, ("x", "y"), (8, 6), "", True) for name in "uv")
    net = build(config, Layout(fields, fields, {"x": 8, "y": 6}, {}, "t"))
    torch.manual_seed(1)
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.1)
    return net.eval(), [torch.randn(2, 8, 6) for _ in "uv"]


@pytest.mark.parametrize("kind", ["circular", "zeros", "edge"])
@pytest.mark.parametrize("space", [(17,), (5, 14), (4, 13, 3)])
def test_slabs_are_the_whole(kind, space, monkeypatch) -> None:
    thin(monkeypatch)
    stage = Counted([kind] * len(space))
    x = torch.randn(2, 2, *space, dtype=torch.float64)
    with torch.no_grad():
        whole = stage(x)
        stage.shapes.clear()
        found = slabwise(stage, [x], 2, [kind] * len(space))
    torch.testing.assert_close(found, whole, rtol=0, atol=1e-13)
    assert len(stage.shapes) > 3
    assert max(max(shape) for shape in stage.shapes) < max(space)


def test_with_gradients_fields_stay_whole(monkeypatch) -> None:
    thin(monkeypatch)
    stage = Counted(["zeros"])
    slabwise(stage, [torch.randn(1, 2, 20, dtype=torch.float64)], 2, ["zeros"])
    assert stage.shapes == [(20,)]


@pytest.mark.parametrize("kind", ["circular", "zeros", "edge"])
@pytest.mark.parametrize("patch", [1, 2, 4])
@pytest.mark.parametrize("network", [UNet, partial(ConvNeXtUNet, kernel=3)])
@pytest.mark.parametrize("size", [31, 63])
def test_a_network_of_slabs_is_the_whole_one(network, kind, patch, size, monkeypatch) -> None:
    """First and last stages have other cells in than out; ConvNeXt's blocks are of slabs too."""
    torch.manual_seed(0)
    net = network(2, 3, [kind, "zeros"], widths=[16, 6], patch=patch).double()
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.2)
    x = torch.randn(2, 2, size, 8, dtype=torch.float64)
    with torch.no_grad():
        whole = net(x)
        thin(monkeypatch)
        torch.testing.assert_close(net(x), whole, rtol=0, atol=1e-12)
        if isinstance(net, Parted):
            torch.testing.assert_close(net.decoded(*net.encoded(x)), whole, rtol=0, atol=1e-12)


@pytest.mark.parametrize("patch", [1, 2, 3])
@pytest.mark.parametrize("space", [(4,), (2, 3), (3, 2, 4)])
def test_patches_are_channels_from_the_last_dim_on(patch, space) -> None:
    x = torch.randn(2, 3, *(patch * n for n in space))
    merged = space_to_channels(x, patch)
    assert merged.shape == (2, 3 * patch ** len(space), *space)
    cell = tuple(n - 1 for n in space)
    block = x[(..., *(slice(patch * c, patch * (c + 1)) for c in cell))]
    order = block.movedim(1, -1).permute(0, *reversed(range(1, len(space) + 1)), -1)
    assert torch.equal(merged[(..., *cell)], order.flatten(1))
    assert torch.equal(channels_to_space(merged, patch), x)


def test_an_emulator_without_gradients_gives_the_same_and_keeps_its_inputs(emulator) -> None:
    """Outputs overwrite those of the network, but nothing that the caller holds."""
    model, inputs = emulator
    before = [x.clone() for x in inputs]
    wanted = model(*inputs)
    with torch.no_grad():
        found = model(*inputs)
    assert all(torch.equal(a, b) for a, b in zip(found, wanted, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(inputs, before, strict=True))


def test_ranks_cut_a_dim_that_they_hold_whole(monkeypatch) -> None:
    """A dim that no other rank has a share in is cut, so that all exchange the same halos."""
    x = torch.randn(1, 2, 8, 13, dtype=torch.float64)
    stage = Counted(["circular", "zeros"])
    with torch.no_grad():
        whole = stage(x)
    thin(monkeypatch)

    def work(ranks) -> torch.Tensor:
        padding = [Slabs(ranks, "circular"), "zeros"]
        cut = [slice(0, 4), slice(4, 8)][ranks.rank]
        torch.manual_seed(0)
        mine = Counted(padding)
        with torch.no_grad():
            return slabwise(mine, [x[:, :, cut]], 2, padding)

    found = torch.cat(run_ranks(2, work, Traffic), 2)
    torch.testing.assert_close(found, whole, rtol=0, atol=1e-13)
