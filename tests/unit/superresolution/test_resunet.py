"""The encoder of the paper as an option of the same job."""

from __future__ import annotations

import functools

import pytest
import torch
from advected_waves import wave_fields

from scitoolkit import api
from scitoolkit.superresolution import SuperresolutionSurrogate
from scitoolkit.superresolution.encoder import Encoder
from scitoolkit.superresolution.resunet import ResidualUNet, _pool


def test_the_longer_dims_are_pooled_first():
    x = torch.arange(4 * 8 * 32.0).reshape(1, 1, 4, 8, 32)
    shapes = []
    for _ in range(6):
        x = _pool(x)
        shapes.append(tuple(x.shape[2:]))
    assert shapes == [(4, 4, 16), (4, 4, 8), (4, 4, 4), (2, 2, 2), (1, 1, 1), (1, 1, 1)]
    assert x.item() == 4 * 8 * 32 - 1


@pytest.mark.parametrize("nodes", [(7,), (5, 6), (3, 5, 8), (2, 3, 4, 5)])
def test_any_number_of_dims_and_nodes(nodes):
    encoder = ResidualUNet(3, [False] * len(nodes), widths=[4, 8, 16], channels_out=6)
    out = encoder(torch.randn(2, 3, *nodes))
    assert out.shape == (2, 6, *nodes)
    out.square().mean().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in encoder.parameters())


@pytest.mark.parametrize("levels", [2, 3])
@pytest.mark.parametrize("kind", [ResidualUNet, functools.partial(Encoder, blocks=1, stages=[])])
def test_periodic_dims_have_no_origin_but_that_of_the_pairs_of_the_pooling(kind, levels):
    encoder = kind(2, [True, False], widths=[4, 8, 12][:levels], channels_out=3).eval()
    x, pairs = torch.randn(1, 2, 16, 12), 2 ** (levels - 1)
    for nodes in (pairs, 3 * pairs):
        assert torch.allclose(encoder(x.roll(nodes, 2)), encoder(x).roll(nodes, 2), atol=1e-5)
    assert not torch.allclose(encoder(x.roll(1, 2)), encoder(x).roll(1, 2), atol=1e-2)


def test_the_modules_of_the_paper_train_and_load(job_file):
    model = {
        "encoder": {"name": "resunet", "widths": [4, 8, 8], "channels": 4},
        "interpolate": False,
        "decoder": {"name": "imnet", "widths": [16, 8]},
    }
    run = api.train(job_file(model=model, training={"batch_size": 4, "steps": 2}))
    surrogate = SuperresolutionSurrogate.load(run.path / "model")
    assert isinstance(surrogate.model.encoder, ResidualUNet)
    low = wave_fields().isel(t=slice(None, None, 4), x=slice(None, None, 4))
    assert surrogate.coarse(low).query(torch.rand(5, 2).double().numpy()).shape == (1, 5, 1)
