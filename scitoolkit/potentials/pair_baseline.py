"""Pair potential fitted by linear least squares: the baseline of a trained potential.

E = sum over atoms of e(element) + sum over pairs of phi(r; elements), where phi is a cubic spline.
Energies and forces are linear in the coefficients, so that the fit is a closed-form ridge
regression with the weights of the loss at the end of the training. Virials are not fitted. ZBL
repulsion is a pair potential too and is not subtracted from the labels.

Source: force matching, Ercolesi and Adams, Europhys. Lett. 26, 583 (1994),
doi:10.1209/0295-5075/26/8/005, here without a many-body term. Penalised B-splines: Eilers and
Marx, Stat. Sci. 11, 89 (1996), doi:10.1214/ss/1038425655.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from logging import Logger

import numpy as np

from scitoolkit.core.contracts import Batch
from scitoolkit.core.log import get_logger
from scitoolkit.potentials.data import GraphSet
from scitoolkit.potentials.graph import edge_vectors
from scitoolkit.potentials.loss_config import LossConfig
from scitoolkit.potentials.pair_potential import PairPotential
from scitoolkit.potentials.pair_splines import PairSplines
from scitoolkit.potentials.statistics import composition, energy_shifts

log: Logger = get_logger(__name__)
FUNCTIONS, FEWEST, LARGEST = 32, 8, 1024  # splines: per pair, at least, of all pairs
FRAMES, EDGES = 1000, 1_000_000  # at most; five times as many edges change force errors by < 1 %
RIDGES = 10.0 ** np.arange(-10, 2)
WITHIN = 1.02
"""The largest ridge whose loss is within this factor of the lowest: distances that the frames lack
are then interpolated smoothly (compare the one-standard-error rule of cross-validation)."""
DETERMINED = 1e-6  # least weight of energies, relative to forces, that determines e(element)
BLOCK = 4_000_000  # elements of the design matrix of one block of atoms


def fit_pair_potential(
    train: GraphSet,
    validation: GraphSet,
    num_types: int,
    cutoff: float,
    loss: LossConfig,
    functions: int = FUNCTIONS,
) -> PairPotential | None:
    """Fit a pair potential to training graphs, with the ridge chosen on validation graphs.

    At most `FRAMES` frames with about `EDGES` edges of each set are used, evenly spread over it.
    Frames without forces or without an energy contribute their other label. The ridge is chosen on
    the training graphs if no validation graph has a label; see `WITHIN`.

    Args:
        train: graphs to fit.
        validation: graphs to choose the ridge on.
        num_types: elements T of the graphs.
        cutoff: Å.
        loss: weights; those at the end of the training, unless all of them are zero.
        functions: splines of each pair of elements; fewer if there are many pairs.

    Returns:
        The potential, or None if the frames have no pairs, no labels, or pairs of more than about
        15 elements.
    """
    graphs = _sample(train)
    pairs, starts = _pairs(graphs, num_types, cutoff)
    functions = min(functions, max(FEWEST, LARGEST // max(1, len(pairs))))
    if not len(pairs) or len(pairs) * functions > LARGEST:
        log.info("no pair potential is fitted as baseline: %d pairs of elements", len(pairs))
        return None
    splines = PairSplines(pairs, starts, functions, cutoff, num_types)
    labelled = [graph for graph in graphs if "energy" in graph]
    mean = energy_shifts(*composition(labelled, num_types)) if labelled else np.zeros(num_types)
    weights = loss.weights(0.0) if any(loss.weights(0.0).values()) else loss.weights(1.0)
    energy = max(weights["energy"], DETERMINED * weights["forces"]) if labelled else 0.0
    weights = {"energy": energy, "forces": weights["forces"]}
    fitted, held = _Equations(splines, mean, weights), _Equations(splines, mean, weights)
    for graph in graphs:
        fitted.add(graph)
    for graph in _sample(validation):
        held.add(graph)
    if not fitted.square:
        log.info("no pair potential is fitted as baseline: no labels")
        return None
    solutions = [fitted.solve(ridge, functions) for ridge in RIDGES]
    losses = np.array([(held if held.square else fitted).loss(solution) for solution in solutions])
    best = int(np.flatnonzero(losses <= WITHIN * losses.min())[-1])
    log.info(
        "baseline: pair potential of %d splines fitted to %d frames, ridge %.0e",
        splines.size,
        len(graphs),
        RIDGES[best],
    )
    coefficients, change = np.split(solutions[best], [splines.size])
    return PairPotential(
        cutoff,
        pairs.tolist(),
        starts.tolist(),
        coefficients.reshape(-1, functions).tolist(),
        (mean + change).tolist(),
        mean.tolist(),
        float(RIDGES[best]),
        len(graphs),
    )


def _sample(graphs: GraphSet) -> list[Batch]:
    """Return at most `FRAMES` graphs with about `EDGES` edges, evenly spread over the set."""
    if not len(graphs):
        return []
    edges = float(np.mean([graph["edge_index"].shape[1] for graph in graphs.spread(8)]))
    return list(graphs.spread(int(np.clip(EDGES / (edges + 1), 8, FRAMES))))


def _pairs(graphs: Sequence[Batch], num_types: int, cutoff: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of types in the graphs (M, 2) and the start of their splines (M,), Å."""
    nearest = np.full((num_types, num_types), np.inf)
    for graph in graphs:
        types = np.sort(graph["types"].numpy()[graph["edge_index"].numpy()], axis=0)
        distance = np.linalg.norm(edge_vectors(graph).numpy(), axis=1)
        np.minimum.at(nearest, tuple(types), distance)
    pairs = np.argwhere(np.isfinite(nearest))
    return pairs, np.minimum(nearest[tuple(pairs.T)], 0.8 * cutoff)


class _Equations:
    """Normal equations of the coefficients and of changes of the elements' mean energies."""

    def __init__(
        self, splines: PairSplines, mean: np.ndarray, weights: Mapping[str, float]
    ) -> None:
        self._splines, self._mean = splines, mean
        self._energy, self._forces = weights["energy"], weights["forces"]
        size = splines.size + len(mean)
        self._matrix, self._right = np.zeros((size, size)), np.zeros(size)
        self.square: float = 0.0

    def add(self, graph: Batch) -> None:
        """Add the labels of one configuration."""
        types, size = graph["types"].numpy(), self._splines.size
        forces = graph["forces"].numpy() if self._forces and "forces" in graph else None
        sums = np.zeros(size)
        for block in self._splines.blocks(graph, max(1, BLOCK // (3 * size))):
            sums += np.bincount(block.columns.ravel(), 0.5 * block.values.ravel(), size)
            if forces is not None:
                labels = forces[block.atoms]
                place = (block.centre[:, None] * size + block.columns).ravel()
                pulls = [(block.slopes * block.unit[:, axis, None]).ravel() for axis in range(3)]
                summed = [np.bincount(place, pull, len(labels) * size) for pull in pulls]
                rows = np.reshape(summed, (3 * len(labels), size))
                self._add(rows, labels.T.ravel(), self._forces / (3 * len(types)))
        if self._energy and "energy" in graph:
            row = np.concatenate([sums, np.bincount(types, minlength=len(self._mean))])
            residual = float(graph["energy"][0]) - self._mean[types].sum()
            self._add(row[None], np.array([residual]), self._energy / len(types))

    def _add(self, rows: np.ndarray, targets: np.ndarray, weight: float) -> None:
        width = rows.shape[1]
        self._matrix[:width, :width] += weight * (rows.T @ rows)
        self._right[:width] += weight * (targets @ rows)
        self.square += weight * float(targets @ targets)

    def solve(self, ridge: float, functions: int) -> np.ndarray:
        """Return the coefficients and changes of energies with a penalty on each phi's curvature.

        The penalty is the sum of squared second differences of the coefficients of each pair, plus
        1e-6 of their squares, in units of the mean diagonal element.
        """
        size, diagonal = self._splines.size, self._matrix.diagonal()
        differences = np.diff(np.eye(functions + 3, functions), n=2, axis=0)
        curvature = differences.T @ differences + 1e-6 * np.eye(functions)
        penalised = self._matrix.copy()
        scale = ridge * (diagonal[:size].mean() or 1.0)
        penalised[:size, :size] += scale * np.kron(np.eye(size // functions), curvature)
        corner = np.arange(size, len(diagonal))  # compositions may leave energies undetermined
        penalised[corner, corner] += 1e-8 * diagonal[size:].mean() or 1.0
        return np.linalg.solve(penalised, self._right)

    def loss(self, solution: np.ndarray) -> float:
        """Return the loss of a solution, not below the rounding error."""
        loss = solution @ self._matrix @ solution - 2 * self._right @ solution + self.square
        return max(float(loss), 1e-12 * self.square)
