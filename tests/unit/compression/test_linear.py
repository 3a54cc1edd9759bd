"""The linear enhancer against a readable numpy version, and what it must never do."""

from __future__ import annotations

import numpy as np
import pytest

from scitoolkit.compression.enhancers import linear
from scitoolkit.core.errors import DataError


def noisy(shape=(14, 15, 16), dtype=np.float32):
    rng = np.random.default_rng(0)
    grids = np.meshgrid(*(np.linspace(0, 4, n) for n in shape), indexing="ij")
    x = np.sin(sum(grids)).astype(dtype)
    return x, (x + rng.uniform(-0.1, 0.1, shape)).astype(dtype)


def reference(field: np.ndarray, enhancer: linear.LinearTaps, clip: float) -> np.ndarray:
    """Second differences by padding, one at a time."""
    pad = np.pad(field.astype(np.float64), 2, mode="edge")

    def at(dz, dy, dx):
        slices = (slice(2 + d, pad.shape[a] - 2 + d) for a, d in enumerate((dz, dy, dx)))
        return pad[tuple(slices)]

    one = (-1, 1)
    groups = [
        [(0, 0, i) for i in one],
        [(0, i, 0) for i in one],
        [(i, 0, 0) for i in one],
        [(0, i, j) for i in one for j in one],
        [(i, 0, j) for i in one for j in one],
        [(i, j, 0) for i in one for j in one],
        [(i, j, k) for i in one for j in one for k in one],
        [(0, 0, 2 * i) for i in one],
        [(0, 2 * i, 0) for i in one],
        [(2 * i, 0, 0) for i in one],
    ]
    features = (
        np.stack([sum(at(*o) for o in group) - len(group) * at(0, 0, 0) for group in groups])
        * enhancer.scale
    )
    steer = np.abs(features[:3]).sum(0) if enhancer.activity else field
    classes = np.searchsorted(enhancer.limits, steer, side="right")
    taps = enhancer.taps[classes] * 2.0**-enhancer.exponent
    correction = np.clip(
        (np.moveaxis(features, 0, -1) * taps).sum(-1) / enhancer.scale, -clip, clip
    )
    return field + correction


@pytest.mark.parametrize("classes", [1, 4])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_kernel_does_what_the_reference_does(classes, dtype):
    x, y = noisy(dtype=dtype)
    enhancer, _ = linear.fit(x, y, 0.1, classes)
    found = enhancer.apply(y, 0.05)
    expected = reference(y, enhancer, 0.05)
    # A point within rounding of a limit may fall into the other class.
    assert np.mean(np.abs(found - expected) > 1e-5) < 2e-3


@pytest.mark.parametrize("shape", [(500,), (30, 40), (14, 15, 16)])
def test_it_lowers_the_error_and_moves_no_point_beyond_the_clip(shape):
    x, y = noisy(shape)
    enhancer, gained = linear.fit(x, y, 0.1, 4)
    z = enhancer.apply(y, 0.1)
    assert gained < 0
    assert np.mean((z - x) ** 2.0) < 0.8 * np.mean((y - x) ** 2.0)
    assert np.abs(z - y).max() <= 0.1 * (1 + 1e-6)


def test_bytes_are_few_and_come_back():
    x, y = noisy()
    enhancer, _ = linear.fit(x, y, 0.1, 4)
    data = enhancer.to_bytes()
    assert len(data) < 80
    again = linear.LinearTaps.from_bytes(data, enhancer.scale)
    assert (again.taps == enhancer.taps).all()
    assert (again.apply(y, 0.1) == enhancer.apply(y, 0.1)).all()
    for broken in (
        b"",
        data[:-1],
        data + b"x",
        b"\xff" + data[1:],
        data[:1] + b"\x04" + data[2:],
        data[:2] + b"\x20" + data[3:],
        data[:3] + b"\x11" + data[4:],
    ):
        with pytest.raises(DataError):
            linear.LinearTaps.from_bytes(broken, enhancer.scale)


def test_taps_of_16_bits_are_read_as_they_were_written_before():
    taps = np.arange(-20, 20, dtype="<i2").reshape(4, 10) * 1000
    limits = np.array([1, 2, 4], "<f4")
    data = bytes([4, 1]) + limits.tobytes() + taps.tobytes()
    found = linear.LinearTaps.from_bytes(data, 2.0)
    assert (found.taps == taps).all()
    assert (found.limits == limits).all()
    assert (found.activity, found.exponent) == (True, 13)


def test_coarser_taps_keep_the_gain():
    x, y = noisy()
    found, change = linear.fit(x, y, 0.1, 4)
    assert found.exponent < linear.EXPONENTS[-1]
    before = float(((x - y).astype("f8") ** 2).sum())
    after = float(((x - found.apply(y, np.inf)).astype("f8") ** 2).sum())
    assert before - after == pytest.approx(-change * 0.1**2, rel=0.02)
