"""Signs and units of energies, forces and virials, compared through a pair potential.

A pair potential is fitted to the forces of some training frames alone. Its energies E' and virials
W' then vary over the frames as the labels E and W do, if these have the sign and the unit of the
forces. What forces do not determine is left out: the energies of elements and a dependence on the
volume, by regression, and the pressure, by the deviator W - tr(W)/3. Its shears tell the order of
the six numbers of a tensor, which programs write differently. Only a correlation of at least
`CORRELATED` is taken as evidence: labels that a pair potential does not describe pass.
"""

from __future__ import annotations

import itertools
from logging import Logger

import numpy as np

from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.io.atoms import LabelConfig
from scitoolkit.potentials.data import GraphSet
from scitoolkit.potentials.loss_config import LossConfig
from scitoolkit.potentials.pair_baseline import fit_pair_potential
from scitoolkit.potentials.statistics import composition

log: Logger = get_logger(__name__)
FRAMES, FEWEST = 24, 8  # compared; at least, beyond the coefficients that are left out
CORRELATED = 0.85
FACTOR = 6.0
"""Ratio of amplitudes above which units differ: a pair potential fitted to forces has 0.7 to 1.3
times the amplitude of consistent labels (molecules, water, metals), and units of energy differ by
23 (kcal/mol), 27 (hartree), 96 (kJ/mol) or 160 (GPa)."""


def check_consistency(graphs: GraphSet, num_types: int, cutoff: float, labels: LabelConfig) -> None:
    """Compare the signs and units of energies, forces and virials of training graphs.

    Args:
        graphs: with labels.
        num_types: elements of the graphs.
        cutoff: Å, of the graphs.
        labels: units of the files; with a `force_unit` a contradiction is only logged.

    Raises:
        DataError: energies or virials contradict the forces, see the module.
    """
    sample = [graph for graph in graphs.spread(FRAMES) if "forces" in graph]
    no_energies = LossConfig(start_pref_e=0, limit_pref_e=0)
    subset = _Sample(sample)
    pair = (
        fit_pair_potential(subset, subset, num_types, cutoff, no_energies, functions=16)
        if len(sample) >= FEWEST
        else None
    )
    if pair is None:
        return
    energies = [graph for graph in sample if "energy" in graph]
    virials = [graph for graph in sample if "virial" in graph and bool(graph["pbc"].all())]
    compared = {}
    if energies:
        left_out = _left_out(energies, num_types)
        if len(energies) >= left_out.shape[1] + FEWEST:
            predicted = np.array([pair.predict(graph)[0] for graph in energies])
            compared["energies"] = (
                _residual(predicted, left_out),
                _residual(np.array([float(graph["energy"][0]) for graph in energies]), left_out),
            )
    if len(virials) >= FEWEST:
        from_forces, stated = (
            np.stack([_deviator(virial) for virial in tensors])
            for tensors in (
                [pair.virial(graph) for graph in virials],
                [graph["virial"][0].numpy() for graph in virials],
            )
        )
        _compare_order(from_forces, stated, labels)
        compared["virials"] = from_forces.ravel(), stated.ravel()
    for label, (predicted, values) in compared.items():
        problem = _contradiction(predicted, values)
        if not problem:
            continue
        keys = "stress_key, virial_key" if label == "virials" else "energy_unit, force_unit"
        _refuse(f"{label} contradict the forces: {problem}", f"data.labels ({keys})", labels)


def _refuse(message: str, fix: str, labels: LabelConfig) -> None:
    if labels.force_unit is not None:
        log.warning("%s", message)
        return
    raise DataError(
        message,
        where="data.path",
        allowed="forces -dE/dx, virials -volume * stress, in the units of data.labels",
        fix=f"{fix}, or data.labels.force_unit=NAME if they are right",
    )


_SHEARS = {"yz": 5, "xz": 2, "xy": 1}
"""Places of the components of shear in a flat tensor, in Voigt order."""


def _compare_order(predicted: np.ndarray, values: np.ndarray, labels: LabelConfig) -> None:
    """Refuse six numbers whose shears are in another order, such as VASP's xy yz zx.

    Args:
        predicted: deviators of the pair potential, (frames, 9).
        values: those of the labels.
        labels: as for `check_consistency`.
    """
    shears = list(_SHEARS.values())
    correlations = {
        order: _correlation(predicted[:, [_SHEARS[name] for name in order]], values[:, shears])
        for order in itertools.permutations(_SHEARS)
    }
    order = max(correlations, key=lambda names: correlations[names])
    stated = tuple(_SHEARS)
    # Equal shears, as of a strain along a diagonal, correlate in any order.
    if correlations[order] >= max(CORRELATED, correlations[stated] + 0.25):
        _refuse(
            f"virials contradict the forces: their shears are in the order {' '.join(order)}",
            "six numbers in the order xx yy zz yz xz xy, or nine row by row",
            labels,
        )


def _correlation(first: np.ndarray, second: np.ndarray) -> float:
    norms = np.linalg.norm(first) * np.linalg.norm(second)
    return float((first * second).sum() / norms) if norms > 1e-9 else 0.0


class _Sample(GraphSet):
    """Graphs in memory."""

    def __init__(self, graphs: list[Batch]) -> None:
        super().__init__([], range(len(graphs)), [], 0.0)  # type: ignore[arg-type]
        self._kept = dict(enumerate(graphs))


def _left_out(graphs: list[Batch], num_types: int) -> np.ndarray:
    """Return what forces do not determine: numbers of atoms and powers of the volume."""
    counts, _ = composition(graphs, num_types)
    cells = np.stack([graph["cell"][0].numpy() for graph in graphs])
    volumes = np.abs(np.linalg.det(cells))[:, None]
    columns = np.hstack([counts, volumes, volumes**2 / counts.sum(1, keepdims=True)])
    basis, sizes, _ = np.linalg.svd(columns / (np.linalg.norm(columns, axis=0) + 1e-300))
    return basis[:, : int((sizes > 1e-9 * sizes[0]).sum())]


def _residual(values: np.ndarray, basis: np.ndarray) -> np.ndarray:
    return values - basis @ (basis.T @ values)


def _deviator(virial: np.ndarray) -> np.ndarray:
    return (virial - np.eye(3) * np.trace(virial) / 3).ravel()


def _contradiction(predicted: np.ndarray, values: np.ndarray) -> str:
    """Return how the labels differ from the prediction, "" if they fit or cannot be compared."""
    norms = np.linalg.norm(predicted), np.linalg.norm(values)
    if not min(norms) > 1e-9:
        return ""
    correlation, ratio = predicted @ values / (norms[0] * norms[1]), norms[1] / norms[0]
    if not abs(correlation) >= CORRELATED:
        return ""
    if correlation < 0:
        return f"they have the opposite sign (correlation {correlation:.2f})"
    if not 1 / FACTOR <= ratio <= FACTOR:
        return f"they are {ratio:.3g} times as large as forces tell, as if in another unit"
    return ""
