"""Submatrix density matrices: linearity, crossover with eigh, errors, sparse purification.

A jittered periodic cubic lattice with two levels per atom and hoppings that vanish smoothly at 1.8
lattice constants, patterns of H², groups of eight atoms, polynomials of the submatrices; CPU time
of one thread (OMP_NUM_THREADS=1), medians of alternating runs. `crossover_orbitals_diagonalised`
and `seconds_diagonalised` are for the same submatrices, diagonalised.
"""

from __future__ import annotations

import statistics
import time
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
from _measure import machine
from scipy.spatial import cKDTree

from scitoolkit.generators.submatrix.chebyshev import ChebyshevSubmatrices
from scitoolkit.generators.submatrix.density import DensityMethod
from scitoolkit.generators.submatrix.functions import Submatrices
from scitoolkit.generators.submatrix.pattern import compact_blocks, powers

GAP, REACH, HOPS, GROUP, ROUNDS = 4.0, 1.8, 2, 8, 3
THRESHOLD = 1e-5


class Lattice(NamedTuple):
    """Positions, pairs (i < j) with their vectors, and the Hamiltonian."""

    positions: np.ndarray
    pairs: np.ndarray
    vectors: np.ndarray
    matrix: sp.csr_array


COUPLING = ((0, 0, 0.25), (1, 1, -0.25), (0, 1, 0.35), (1, 0, 0.35))


def hop(r: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the hop at a distance and its slope."""
    c = np.clip((REACH - r) / 0.6, 0, 1)
    smooth, slope = c * c * (3 - 2 * c), -(6 * c - 6 * c * c) / 0.6 * (c < 1)
    value = -np.exp(-2 * (r - 1))
    return value * smooth, -2 * value * smooth + value * slope


def lattice(m: int, move: tuple[int, int, float] | None = None) -> Lattice:
    rng = np.random.default_rng(1)
    grid = np.stack(np.meshgrid(*[np.arange(m)] * 3, indexing="ij"), -1).reshape(-1, 3)
    positions = grid + 0.08 * rng.standard_normal((m**3, 3))
    levels = np.tile([-GAP / 2, GAP / 2], m**3) + 0.05 * rng.standard_normal(2 * m**3)
    if move:
        positions[move[0], move[1]] += move[2]
    pairs = cKDTree(positions % m, boxsize=m).query_pairs(REACH, output_type="ndarray")
    vectors = positions[pairs[:, 0]] - positions[pairs[:, 1]]
    vectors -= m * np.round(vectors / m)
    value = hop(np.linalg.norm(vectors, axis=1))[0]
    parts = [(w * value, (2 * pairs[:, 0] + a, 2 * pairs[:, 1] + b)) for a, b, w in COUPLING]
    n = 2 * m**3
    half = sum(sp.coo_array(part, shape=(n, n)).tocsr() for part in parts)
    return Lattice(positions, pairs, vectors, sp.csr_array(half + half.T + sp.diags_array(levels)))


def submatrices(made: Lattice, kind: type[DensityMethod] = ChebyshevSubmatrices) -> DensityMethod:
    groups = compact_blocks(made.positions, GROUP, 2)
    return kind(made.matrix, groups, powers(made.matrix, HOPS))


def solve(made: Lattice, kind: type[DensityMethod] = ChebyshevSubmatrices):
    return submatrices(made, kind).density(made.matrix.shape[0] // 2)


def run() -> dict:
    made = {m: lattice(m) for m in (10, 22)}
    small = made[10].matrix
    solve(made[10])  # compiles
    work = {
        "small": lambda: solve(made[10]),
        "large": lambda: solve(made[22]),
        "dense": lambda: np.linalg.eigh(small.toarray()),
        "diagonalised": lambda: solve(made[10], Submatrices),
    }
    times = {key: [] for key in work}
    for _ in range(ROUNDS):
        for key, each in work.items():
            times[key].append(timed(each))
    seconds = {key: statistics.median(t) for key, t in times.items()}
    n = {key: made[m].matrix.shape[0] for key, m in (("small", 10), ("large", 22))}
    cubic = seconds["dense"] / n["small"] ** 3

    def crossover(key: str) -> float:
        return float(np.sqrt(seconds[key] / n["small"] / cubic))

    return {
        "linearity_error": abs(seconds["large"] / n["large"] / (seconds["small"] / n["small"]) - 1),
        "orbitals": list(n.values()),
        "seconds": [seconds["small"], seconds["large"]],
        "crossover_orbitals": crossover("small"),
        "crossover_orbitals_diagonalised": crossover("diagonalised"),
        "dense_seconds_2000": seconds["dense"],
        "seconds_diagonalised": seconds["diagonalised"],
        **accuracy(),
        **purification(),
        "machine": machine(),
    }


def timed(work) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def accuracy() -> dict:
    made = lattice(8)
    n = made.matrix.shape[0]
    w, q = np.linalg.eigh(made.matrix.toarray())
    d = q[:, : n // 2] @ q[:, : n // 2].T
    found = solve(made)
    mask = sp.csr_array((np.ones(made.matrix.nnz), made.matrix.indices, made.matrix.indptr))
    error = float(abs(found.matrix * mask - mask * d).max())
    exact, ours = forces(made, sp.csr_array(d * mask.toarray())), forces(made, found.matrix)
    return {
        "gap_over_width": float((w[n // 2] - w[n // 2 - 1]) / (w[-1] - w[0])),
        "energy_error": abs(found.energy / w[: n // 2].sum() - 1),
        "density_error": error,
        "force_error": float(np.abs(ours - exact).max() / np.abs(exact).max()),
        "estimate_factor": max(found.error / error, error / found.error),
        "electron_error": abs(found.electrons - n // 2),
        "submatrix_rows": float(submatrices(made).sizes.mean()),
    }


def forces(made: Lattice, d: sp.csr_array) -> np.ndarray:
    r = np.linalg.norm(made.vectors, axis=1)
    slope, out = hop(r)[1], np.zeros_like(made.positions)
    i, j = made.pairs.T
    strength = sum(2 * np.asarray(d[2 * i + a, 2 * j + b]).ravel() * w for a, b, w in COUPLING)
    push = (strength * slope / r)[:, None] * made.vectors
    np.add.at(out, i, -push)
    np.add.at(out, j, push)
    return out


def purification() -> dict:
    """Return the time of sparse SP2 purification (scipy) over that of the submatrices, n = 1024."""
    made = lattice(8)
    n = made.matrix.shape[0]
    ours = statistics.median(timed(lambda: solve(made)) for _ in range(ROUNDS))
    begin = time.process_time()
    radius = float(abs(made.matrix).sum(1).max())
    x = sp.csr_array((sp.eye_array(n) * radius - made.matrix) / (2 * radius))
    iterations, purified = 0, False
    while not purified and iterations < 60:
        iterations += 1
        x2 = x @ x
        trace, trace2 = x.diagonal().sum(), x2.diagonal().sum()
        purified = abs(trace - trace2) < 1e-4 * n / 2
        down = abs(trace2 - n / 2) < abs(2 * trace - trace2 - n / 2)
        x = sp.csr_array(x2 if down else 2 * x - x2)
        x.data[np.abs(x.data) < THRESHOLD] = 0
        x.eliminate_zeros()
    theirs = time.process_time() - begin
    energy = float((x * made.matrix).sum())
    exact = np.linalg.eigvalsh(made.matrix.toarray())[: n // 2].sum()
    return {
        "over_purification": theirs / ours,
        "purification_iterations": iterations,
        "purification_energy_error": abs(energy / exact - 1),
        "purification_nonzeros_a_row": x.nnz / n,
    }
