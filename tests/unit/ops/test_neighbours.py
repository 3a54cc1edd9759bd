from __future__ import annotations

import numpy as np
import pytest

from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.ops import neighbours


def all_pairs(positions, cell, pbc, cutoff, reach=6):
    """Every image within a generous box, the readable way."""
    steps = [range(-reach, reach + 1) if p else (0,) for p in pbc]
    images = np.array([[a, b, c] for a in steps[0] for b in steps[1] for c in steps[2]]) @ cell
    found = []
    for i, own in enumerate(positions):
        for j, other in enumerate(positions):
            vectors = other + images - own
            distance = np.linalg.norm(vectors, axis=1)
            found += [(i, j, *v) for v in vectors[(distance < cutoff) & (distance > 1e-12)]]
    return sorted(tuple(np.round(row, 6) + 0.0) for row in found)


@pytest.mark.parametrize("seed", range(12))
def test_pairs_are_those_of_a_sum_over_images(seed):
    """Skewed cells smaller than the cutoff, atoms outside the cell, mixed boundaries."""
    rng = np.random.default_rng(seed)
    number, length = rng.integers(1, 9), rng.uniform(2.5, 7)
    cell = np.eye(3) * length + 0.15 * length * rng.normal(size=(3, 3))
    pbc = rng.random(3) < 0.7
    positions = rng.uniform(-1, 2, (number, 3)) @ cell
    types = rng.integers(0, 3, number)
    cutoff = rng.uniform(1, 5)
    centre, neighbour, shift, segments, nearest = neighbours.neighbour_list(
        positions, types, 3, cell, pbc, cutoff
    )
    vectors = positions[neighbour] + shift - positions[centre]
    rows = np.column_stack([centre, neighbour, vectors])
    assert sorted(tuple(np.round(row, 6) + 0.0) for row in rows) == all_pairs(
        positions, cell, pbc, cutoff
    )
    own = np.repeat(np.arange(number * 3), np.diff(segments))
    assert np.array_equal(own, centre * 3 + types[neighbour])
    if len(rows):
        assert nearest[0] == pytest.approx(np.linalg.norm(vectors, axis=1).min())


def test_more_pairs_than_guessed_are_all_returned():
    positions = np.random.default_rng(0).uniform(0, 0.5, (200, 3))
    found = neighbours.neighbour_list(
        positions, np.zeros(200, int), 1, np.eye(3), np.zeros(3, bool), 5.0
    )
    assert len(found[0]) == 200 * 199


@pytest.mark.parametrize("pbc", [(True, True, True), (True, False, False)])
def test_threads_change_nothing(pbc):
    rng = np.random.default_rng(1)
    positions, types = rng.uniform(-4, 16, (700, 3)), rng.integers(0, 3, 700)
    cell = 12.0 * np.eye(3) + rng.uniform(-1, 1, (3, 3))
    one, other = (
        neighbours.neighbour_list(positions, types, 3, cell, np.array(pbc), 3.0, threads=threads)
        for threads in (1, 3)
    )
    assert len(one[0]) > 5000
    assert one[4] == other[4]
    for a, b in zip(one[:4], other[:4], strict=True):
        assert np.array_equal(a, b)


def test_one_boundary_condition_for_all_directions():
    arguments = (np.random.default_rng(2).uniform(0, 3, (5, 3)), np.zeros(5, int), 1, 3 * np.eye(3))
    for one in (True, False):
        found, wanted = (
            neighbours.neighbour_list(*arguments, pbc, 1.6) for pbc in (one, np.full(3, one))
        )
        assert all(map(np.array_equal, found[:4], wanted[:4]))


def test_no_atoms_have_no_neighbours():
    found = neighbours.neighbour_list(
        np.zeros((0, 3)), np.zeros(0, int), 2, np.eye(3), np.zeros(3, bool), 1.0
    )
    assert [len(each) for each in found[:4]] == [0, 0, 0, 1]


@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        ({"types": np.array([0, 2])}, DataError, "types from 0 to 2. Allowed: 0 to 1"),
        ({"types": np.zeros(3, int)}, DataError, r"types of shape \(2,\), got \(3,\)"),
        ({"positions": np.zeros((2, 2))}, DataError, r"positions of shape \(2, 3\)"),
        ({"positions": np.array([[0, 0, 0], [0, np.nan, 0]])}, DataError, "atom 1 is not finite"),
        ({"cell": np.diag([1.0, 1.0, 0.0])}, DataError, "independent lattice vectors"),
        ({"cutoff": 0.0}, ConfigError, "cutoff=0.0"),
    ],
)
def test_bad_arguments(changed, error, message):
    arguments = {
        "positions": np.zeros((2, 3)),
        "types": np.array([0, 1]),
        "num_types": 2,
        "cell": np.eye(3),
        "pbc": np.ones(3, bool),
        "cutoff": 1.0,
    }
    with pytest.raises(error, match=message):
        neighbours.neighbour_list(**(arguments | changed))
