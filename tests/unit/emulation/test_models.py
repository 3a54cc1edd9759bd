from __future__ import annotations

import numpy as np
import pytest
import torch

from scitoolkit.core.errors import ConfigError
from scitoolkit.emulation.models.config import models
from scitoolkit.emulation.models.factorised_fno import FactorisedFNO
from scitoolkit.emulation.models.fno import FNO
from scitoolkit.emulation.models.layers import Block, down, pad, resize
from scitoolkit.emulation.models.spectral import SpectralMixing
from scitoolkit.emulation.models.transport import transport
from scitoolkit.emulation.models.unet import UNet
from scitoolkit.testing import FieldModelContract


def _awake(net):
    """Blocks begin as the identity: give all parameters values, so that tests see them."""
    torch.manual_seed(1)
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    return net.double()


SMALL = {
    "widths": [4, 6],
    "width": 4,
    "layers": 2,
    "blocks": 1,
    "modes": [3],
    "products": 3,
    "sources": 2,
    "heads": 2,
}


def _small(name, **changed):
    section = models.get(name)
    settings = {k: v for k, v in (SMALL | changed).items() if k in section.model_fields}
    return section(name=name, **settings)


class TestModels(FieldModelContract):
    @pytest.fixture(params=[name for name in models.names() if name != "mlp"])
    def model(self, request):
        return _small(request.param)


class TestPatches(FieldModelContract):
    @pytest.fixture(params=["unet", "convnext_unet", "resnet"])
    def model(self, request):
        return _small(request.param, patch=2, widths=[8, 6], width=8, kernel=5)


class TestAxialAttention(FieldModelContract):
    @pytest.fixture
    def model(self):
        return _small("field_transformer", width=24, heads=6, patch=2, attention="axial")


@pytest.mark.parametrize("attention", ["full", "axial"])
def test_attention_is_equivariant_to_shifts_by_patches(attention):
    torch.manual_seed(0)
    net = _awake(
        _small("field_transformer", width=8, patch=2, attention=attention).build(
            2, 3, ["circular"] * 2
        )
    )
    x = torch.randn(1, 2, 12, 10, dtype=torch.float64)
    for shifts in ((2, 0), (4, 6), (0, 8)):
        moved = net(x.roll(shifts, (2, 3)))
        torch.testing.assert_close(moved, net(x).roll(shifts, (2, 3)), atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize(
    "wrong", [{"width": 6, "heads": 2}, {"width": 8, "heads": 2, "attention": "axial"}]
)
def test_heads_that_do_not_divide_are_refused(wrong):
    with pytest.raises(ConfigError, match="heads of a width"):
        _small("field_transformer", **wrong).build(2, 3, ["circular"] * 3)


class TestVectors(FieldModelContract):
    dims = (0,)

    @pytest.fixture
    def model(self):
        return _small("mlp")


@pytest.mark.parametrize("name", list(models.names()))
def test_a_condition_has_no_influence_at_first(name):
    padding, size = (["circular", "zeros"], (12, 8)) if name != "mlp" else ([], ())
    torch.manual_seed(0)
    x, plain = torch.randn(2, 2, *size), _small(name).build(2, 3, padding)
    net = _small(name).build(2, 3, padding, 5)
    net.load_state_dict({**net.state_dict(), **plain.state_dict()})
    assert torch.equal(net(x, torch.randn(2, 5)), plain(x))


@pytest.mark.parametrize("padding", ["circular", "edge", "zeros"])
def test_padding_agrees_with_torch(padding):
    x = torch.randn(1, 1, 5, dtype=torch.float64)
    mode = {"circular": "circular", "edge": "replicate", "zeros": "constant"}[padding]
    assert torch.equal(pad(x, 2, 3, padding), torch.nn.functional.pad(x, (3, 3), mode=mode))


def test_circular_padding_may_be_wider_than_the_field():
    x = torch.arange(3.0).view(1, 1, 3)
    wide = pad(x, 2, 7, "circular").flatten()
    assert wide.tolist() == [float((i - 7) % 3) for i in range(17)]


def test_a_factorised_operator_has_far_fewer_parameters():
    padding = ["circular"] * 3
    counts = [
        sum(p.numel() for p in make(2, 2, padding, width=8, layers=1, modes=[6]).parameters())
        for make in (FNO, FactorisedFNO)
    ]
    assert counts[1] < counts[0] / 20


def test_a_block_begins_as_the_identity():
    x = torch.randn(1, 4, 6)
    assert torch.equal(Block(4, ["circular"])(x), x)


def test_odd_sizes_go_down_and_up():
    x = torch.randn(1, 2, 7, 1)
    assert down(x).shape == (1, 2, 4, 1)
    assert resize(down(x), (7, 1)).shape == x.shape
    assert torch.allclose(down(torch.ones(1, 1, 5)), torch.ones(1, 1, 3))


@pytest.mark.parametrize("dense", [False, True])
def test_spectral_mixing_is_a_low_pass_with_unit_weights(dense):
    layer = SpectralMixing(1, ["circular", "zeros"], [3, 4], dense=dense).double()
    with torch.no_grad():
        eye = torch.eye(layer.shape[1], dtype=torch.float64).expand(layer.shape)
        layer.real.copy_(eye.reshape(-1))
        layer.imaginary.zero_()
    i, j = torch.arange(16)[:, None], torch.arange(10)[None]
    low = torch.cos(2 * torch.pi * 2 * i / 16 + 0.3) * torch.cos(torch.pi * 3 * (j + 0.5) / 10)
    high = torch.cos(2 * torch.pi * 5 * i / 16) * torch.ones(1, 10)
    x = (low + high).double()[None, None]
    assert torch.allclose(layer(x), low.double()[None, None], atol=1e-6)


def test_modes_that_a_coarse_grid_cannot_hold_are_left_out():
    layer = _awake(SpectralMixing(2, ["circular"], [8]))
    x = torch.randn(1, 2, 6, dtype=torch.float64)
    fine = torch.nn.functional.interpolate(x, 12)
    assert layer(x).shape == x.shape
    assert torch.isfinite(layer(fine)).all()


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_transport_by_whole_cells_is_a_shift(dims):
    padding = ["circular"] * dims
    x = torch.randn(2, 1, *(8, 6, 5)[:dims], dtype=torch.float64)
    move = torch.zeros(2, 1, dims, *x.shape[2:], dtype=torch.float64)
    reach = [3] * dims
    move[:, :, 0] = 3 * torch.atanh(torch.tensor(-2 / 3, dtype=torch.float64))
    assert torch.allclose(transport(x, move, reach, padding), torch.roll(x, 2, 2), atol=1e-9)
    assert torch.allclose(transport(x, 0 * move, reach, padding), x, atol=1e-9)


def test_transport_keeps_the_value_at_a_wall():
    x = torch.arange(5.0).view(1, 1, 5)
    out = transport(x, torch.full((1, 1, 1, 5), 50.0), [4], ["zeros"])
    assert np.allclose(out.flatten(), 4.0)


def test_a_dim_without_transport_has_finite_gradients():
    x = torch.randn(2, 1, 5, 4, generator=torch.Generator().manual_seed(0))
    move = torch.zeros(2, 1, 2, 5, 4, requires_grad=True)
    out = transport(x, move, [3, 0], ["circular", "zeros"])
    assert torch.allclose(out, x)
    out.square().sum().backward()
    assert torch.isfinite(move.grad).all()
    assert move.grad[:, :, 0].any()
    assert not move.grad[:, :, 1].any()


@pytest.mark.parametrize(("width", "patch"), [(10, 2), (8, 4)])
def test_a_first_width_that_patches_do_not_divide_is_refused(width, patch):
    with pytest.raises(ConfigError, match=f"multiple of {patch**2}"):
        UNet(3, 2, ["zeros", "zeros"], widths=[width, 16], patch=patch)
