"""The coder gives back its integers, the transform its field, on every shape."""

from __future__ import annotations

import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from scitoolkit.compression import choose, dyadic
from scitoolkit.compression.native import library
from scitoolkit.core.errors import BackendError, DataError


@settings(max_examples=40, deadline=None)
@given(
    hnp.arrays(
        np.int32,
        hnp.array_shapes(max_dims=3, max_side=9),
        elements=st.one_of(st.integers(-3, 3), st.integers(-(2**23), 2**23)),
    )
)
def test_integers_come_back(integers):
    data = dyadic.encode_integers(integers)
    assert (dyadic.decode_integers(data, integers.shape) == integers).all()


@pytest.mark.parametrize("shape", [(1,), (2,), (17,), (3, 50), (5, 6, 7), (33, 1, 2), (16, 16, 16)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_decoder_repeats_the_encoder_bit_for_bit(shape, dtype):
    x = np.random.default_rng(0).normal(5, 2, shape).astype(dtype)
    stream, expected = dyadic.encode(x, 0.01)
    found = dyadic.decode(stream, x.shape, x.dtype)
    assert found.tobytes() == expected.tobytes()
    assert np.sqrt(np.mean((found - x) ** 2.0)) < 0.01


def test_correlated_coefficients_are_coded_below_their_plain_entropy():
    rng = np.random.default_rng(0)
    scale = np.exp(2 * np.sin(np.arange(32) / 5))[:, None, None]
    integers = np.rint(rng.laplace(0, 0.4 * scale, (32, 32, 32))).astype(np.int32)
    _, counts = np.unique(integers, return_counts=True)
    share = counts / integers.size
    entropy = -(share * np.log2(share)).sum() * integers.size / 8
    assert len(dyadic.encode_integers(integers)) < 0.93 * entropy


def test_corrections_bring_every_point_within_the_bound():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(10, 11, 12)).astype(np.float32)
    decoded = (x + rng.normal(0, 0.02, x.shape)).astype(np.float32)
    corrections = dyadic.outliers(x, decoded, 0.01)
    assert (corrections[np.abs(x - decoded) < 0.0099] == 0).all()
    dyadic.correct(decoded, corrections, 0.01)
    assert np.abs(x.astype(float) - decoded).max() <= 0.01 * (1 + 1e-5)


def test_an_error_too_large_to_correct_is_said():
    with pytest.raises(OverflowError):
        dyadic.outliers(np.array([1e9]), np.array([0.0]), 1.0)


def test_integers_cut_short_are_noticed():
    data = dyadic.encode_integers(np.random.default_rng(0).integers(-9, 9, (16, 16, 16)))
    with pytest.raises(DataError):
        dyadic.decode_integers(data[:100], (16, 16, 16))


def test_why_the_codec_cannot_be_compiled_is_the_reason_given(monkeypatch):
    def refuse():
        raise BackendError("kernel cache /full cannot be used", fix="free space")

    monkeypatch.setattr(library, "_library", refuse)
    library.unavailable.cache_clear()
    for package in ("pysz", "zfpy", "hdf5plugin"):
        monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(BackendError) as caught:
        choose.encode_best(np.arange(27.0).reshape(3, 3, 3), 1e-3, choose.Options())
    library.unavailable.cache_clear()
    assert str(caught.value) == (
        "no codec accepts shape (3, 3, 3). dyadic and interpolation, compiled on first use, are "
        "not available: kernel cache /full cannot be used. hdf5plugin is not installed. pysz is "
        "not installed. zfpy is not installed. "
        "Fix: free space; or pip install 'scitoolkit[compression]'"
    )


def test_the_transform_has_the_four_vanishing_moments_and_the_gain_of_cdf_9_7():
    x = np.arange(64.0)
    for power in range(4):
        coefficients = ((x / 64) ** power).copy()
        dyadic._wavelet(coefficients.reshape(1, 1, -1), inverse=False)
        # Away from the edges, where the continuation is a mirror and no polynomial.
        assert np.abs(coefficients[9:-9:2]).max() < 1e-12
    constant = np.ones((1, 1, 64))
    dyadic._wavelet(constant, inverse=False)
    np.testing.assert_allclose(constant[0, 0, 0], np.sqrt(2.0) ** 6, rtol=1e-9)
