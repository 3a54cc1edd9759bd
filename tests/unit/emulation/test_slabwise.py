"""The last stage of large fields, slab by slab: what it returns of the whole, in less memory."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from scitoolkit.emulation.models import slabwise as module
from scitoolkit.emulation.models.layers import Conv
from scitoolkit.emulation.models.slabwise import slabwise
from scitoolkit.emulation.models.unet import UNet
from scitoolkit.emulation.spatial.slabs import Slabs
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
def test_a_unet_of_slabs_is_the_unet(kind, monkeypatch) -> None:
    torch.manual_seed(0)
    net = UNet(2, 3, [kind, "zeros"], widths=[8, 6], patch=2).double()
    for parameter in net.parameters():
        nn.init.normal_(parameter, std=0.2)
    x = torch.randn(1, 2, 31, 8, dtype=torch.float64)
    with torch.no_grad():
        whole = net(x)
        thin(monkeypatch)
        torch.testing.assert_close(net(x), whole, rtol=0, atol=1e-12)


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
