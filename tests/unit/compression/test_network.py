"""Group-wise networks: kernel against torch, bytes, and never worse than without."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scitoolkit.compression import compress, decompress, dyadic, inspect_stream, psnr
from scitoolkit.compression.enhancers.group_weights import INPUTS, GroupWeights
from scitoolkit.compression.enhancers.network_training import GroupNetworks, train
from scitoolkit.core.content import content_root
from scitoolkit.core.errors import DataError


@pytest.fixture(scope="module")
def coded():
    x = np.load(content_root("datasets") / "turbulence_sperr" / "wmag_64.npy")[:40, :40, :40]
    x = np.ascontiguousarray(x)
    bound = 1e-2 * float(np.ptp(x))
    _, decoded = dyadic.encode(x, 1.5 * bound)
    return x, decoded, bound


def random_enhancer(dtype=np.float32) -> GroupWeights:
    rng = np.random.default_rng(0)
    return GroupWeights(
        np.array([12.0], np.float32),
        rng.integers(-127, 128, (2, 6, INPUTS)).astype(np.int8),
        rng.integers(-127, 128, (2, 6)).astype(np.int8),
        rng.integers(-127, 128, (2, 6)).astype(np.int8),
        np.array([1e-3, 1e-2, 1e-3], np.float32),
    )


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_kernel_does_what_the_network_does(coded, dtype):
    _, decoded, bound = coded
    decoded = decoded[:9, :10].astype(dtype)
    decoded = np.ascontiguousarray(decoded)
    enhancer = random_enhancer()
    found = enhancer.apply(decoded, bound, 1e9)
    model = GroupNetworks(2, 6).to(torch.float64)
    with torch.no_grad():
        for name, unit in zip(("first", "bias", "second"), enhancer.scales, strict=True):
            weights = getattr(enhancer, name).astype(np.float64) * float(unit)
            getattr(model, name).copy_(torch.from_numpy(weights))
    pad = np.pad(decoded.astype(np.float64), 2, mode="edge")
    offsets = [(0, 0, d) for d in (-2, -1, 1, 2)]
    offsets += [
        (dz, dy, dx)
        for dz, dy in [(-1, -1), (-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0), (1, 1)]
        for dx in (-1, 0, 1)
    ]
    offsets += [(-2, 0, 0), (2, 0, 0), (0, -2, 0), (0, 2, 0)]
    n = decoded.shape
    stencils = [
        pad[2 + a : 2 + a + n[0], 2 + b : 2 + b + n[1], 2 + c : 2 + c + n[2]] - decoded
        for a, b, c in offsets
    ]
    inputs = torch.from_numpy(np.stack(stencils, -1).reshape(-1, 1, INPUTS) / bound)
    both = model(inputs.expand(-1, 2, -1)).detach().numpy()
    group = (decoded.reshape(-1) >= 12.0).astype(int)
    expected = decoded.reshape(-1) + bound * both[np.arange(len(both)), group]
    assert 0 < group.mean() < 1
    np.testing.assert_allclose(found.reshape(-1), expected, atol=2e-5 * np.abs(expected).max())


def test_networks_start_as_no_correction():
    model = GroupNetworks(3, 8)
    assert (model(torch.randn(10, 3, INPUTS)) == 0).all()


def test_training_lowers_the_error_and_the_clip_is_kept(coded):
    x, decoded, bound = coded
    enhancer = train(x, decoded, bound, groups=2, hidden=6, seconds=1.0)
    enhanced = enhancer.apply(decoded, bound, 0.5 * bound)
    assert psnr(x, enhanced) > psnr(x, decoded) + 0.02
    assert np.abs(enhanced.astype(float) - decoded).max() <= 0.5 * bound * (1 + 1e-5)


def test_bytes_come_back_and_other_lengths_are_refused():
    enhancer = random_enhancer()
    data = enhancer.to_bytes()
    assert len(data) == 2 + 12 + 4 + 2 * 6 * (INPUTS + 2)
    assert GroupWeights.from_bytes(data).to_bytes() == data
    for broken in (b"", data[:-1], data + b"x", b"\xff" + data[1:], data[:1] + b"\x00" + data[2:]):
        with pytest.raises(DataError):
            GroupWeights.from_bytes(broken)


def test_a_network_is_used_only_where_it_gains(coded):
    x, _, bound = coded
    stream = compress(x, rel=1e-2, enhancer="network", train_seconds=0.5)
    plain = compress(x, rel=1e-2, enhancer="none")
    y = decompress(stream)
    assert np.abs(x.astype(float) - y).max() <= bound
    used = inspect_stream(stream).get("enhancer", {}).get("name", "none")
    assert used in ("network", "linear", "none")
    assert len(stream) < 1.4 * len(plain)
