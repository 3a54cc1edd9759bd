"""Coupling constants: against e3nn, and by the properties that define them."""

import functools
import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from scitoolkit.core.errors import ConfigError
from scitoolkit.ops.spherical_harmonics import spherical_harmonics
from scitoolkit.ops.wigner import wigner_3j

MAX_DEGREE = 7
TRIPLES = [
    (l1, l2, l3)
    for l1, l2 in itertools.product(range(MAX_DEGREE + 1), repeat=2)
    for l3 in range(abs(l1 - l2), min(l1 + l2, MAX_DEGREE) + 1)
]
PAIRS = [(l1, l2) for l1, l2 in itertools.product(range(6), repeat=2) if l1 + l2 <= MAX_DEGREE]


def test_equal_e3nns_in_basis_and_sign():
    pytest.importorskip("e3nn", minversion="0.5")
    from e3nn import o3

    for triple in TRIPLES:
        want = o3.wigner_3j(*triple, dtype=torch.float64).numpy()
        assert abs(wigner_3j(*triple) - want).max() <= 1e-14, triple


def _rotation(seed):
    turn, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((3, 3)))
    return turn * np.linalg.det(turn)


@functools.cache
def _points(degree):
    rows = torch.randn(60, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return rows, np.linalg.pinv(_harmonics(degree, rows))


def _harmonics(degree, rows):
    return spherical_harmonics(degree, rows, True, backend="reference").numpy()


def _representation(degree, turn):
    """The matrix of a rotation on harmonics, from harmonics of turned points."""
    rows, inverse = _points(degree)
    return (inverse @ _harmonics(degree, rows @ torch.from_numpy(turn).T)).T


@settings(max_examples=40, deadline=None)
@given(triple=st.sampled_from(TRIPLES), seed=st.integers(0, 2**31))
def test_no_rotation_changes_them(triple, seed):
    turn = _rotation(seed)
    on = [_representation(degree, turn) for degree in triple]
    constants = wigner_3j(*triple)
    turned = np.einsum("ai,bj,ck,ijk->abc", *on, constants, optimize=True)
    np.testing.assert_allclose(turned, constants, rtol=0, atol=1e-12)


@pytest.mark.parametrize("pair", PAIRS)
def test_they_are_an_orthogonal_change_of_basis(pair):
    l1, l2 = pair
    size = (2 * l1 + 1) * (2 * l2 + 1)
    blocks = [
        np.sqrt(2 * l3 + 1) * wigner_3j(l1, l2, l3).reshape(size, -1)
        for l3 in range(abs(l1 - l2), l1 + l2 + 1)
    ]
    whole = np.concatenate(blocks, axis=1)
    np.testing.assert_allclose(whole.T @ whole, np.eye(size), rtol=0, atol=1e-14)


@settings(deadline=None)
@given(triple=st.sampled_from(TRIPLES), order=st.permutations(range(3)))
def test_exchanging_two_degrees_gives_the_sign_of_their_sum(triple, order):
    odd = order in ([0, 2, 1], [1, 0, 2], [2, 1, 0])
    sign = (-1) ** sum(triple) if odd else 1
    swapped = wigner_3j(*(triple[i] for i in order))
    np.testing.assert_allclose(
        swapped, sign * wigner_3j(*triple).transpose(order), rtol=1e-14, atol=0
    )


def test_known_constants():
    assert wigner_3j(0, 0, 0).item() == 1
    cross = [np.linalg.det(np.eye(3)[list(ijk)]) for ijk in np.ndindex(3, 3, 3)]
    want = np.reshape(cross, (3, 3, 3)) / np.sqrt(6)
    np.testing.assert_allclose(wigner_3j(1, 1, 1), want, rtol=0, atol=1e-15)


def test_zeros_are_exact_and_the_norm_is_one():
    for triple in TRIPLES:
        sizes = abs(wigner_3j(*triple))
        assert sizes[sizes > 0].min() > 1e-4
        assert abs((sizes**2).sum() - 1) <= 1e-14


def test_constants_are_shared_and_cannot_be_written():
    assert wigner_3j(1, 2, 3) is wigner_3j(1, 2, 3)
    with pytest.raises(ValueError, match="read-only"):
        wigner_3j(1, 2, 3)[0] = 1


def test_degrees_that_do_not_couple_are_named():
    with pytest.raises(ConfigError, match=r"degrees \(1, 1, 3\) do not couple"):
        wigner_3j(1, 1, 3)
