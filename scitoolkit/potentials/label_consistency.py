"""Signs and units of energies, forces and virials, compared through a pair potential.

A pair potential is fitted to the forces of some training frames alone. Its energies E' and virials
W' then vary over the frames as the labels E and W do, if these have the sign and the unit of the
forces. What forces do not determine is left out: the energies of elements and a dependence on the
volume, by regression, and the pressure, by the deviator W - tr(W)/3. Its shears tell the order of
the six numbers of a tensor, which programs write differently. Only a correlation of at least
`CORRELATED` is taken as evidence: labels that a pair potential does not describe pass. Symmetric
frames, such as ideal surfaces, are left out, since one or two numbers correlate by chance. Where
the correlation is `CLOSE`, small factors between usual units, such as 1.89 for a bohr, are evidence
too. The frames of each file and each `config_type` are also compared alone, since those of others
may hide theirs.
"""

from __future__ import annotations

import itertools
from logging import Logger

import numpy as np

from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.io.atoms import ENERGIES, LENGTHS, LabelConfig
from scitoolkit.potentials.data import GraphSet
from scitoolkit.potentials.loss_config import LossConfig
from scitoolkit.potentials.pair_baseline import fit_pair_potential
from scitoolkit.potentials.pair_potential import PairPotential
from scitoolkit.potentials.statistics import composition

log: Logger = get_logger(__name__)
FRAMES, FEWEST = 24, 8  # compared; at least, beyond the coefficients that are left out
REFITS = 4
READ, GROUPS = 512, 8  # frames read for the names of their files; files and types compared
CORRELATED, CLOSE = 0.85, 0.99
HARTREE, BOHR = ENERGIES["hartree"], 1 / LENGTHS["bohr"]
KNOWN = {
    "bohr for angstrom": BOHR,
    "hartree for rydberg": 2.0,
    "kJ for kcal": 4.184,
    "rydberg": HARTREE / 2,
    "kcal/mol": 1 / ENERGIES["kcal/mol"],
    "rydberg/bohr": HARTREE * BOHR / 2,
    "hartree": HARTREE,
    "hartree/bohr": HARTREE * BOHR,
    "kJ/mol": 1 / ENERGIES["kJ/mol"],
    "GPa": 160.21766208,
    "kbar": 1602.1766208,
}
"""Factors between labels in usual units, or their inverses."""
NEAR = 0.1
"""Largest difference between the logarithms of a factor and a known one. Where many-body terms are
strong, consistent labels have 0.6 to 1.7 times the amplitude that a pair potential predicts."""
FACTOR = 6.0  # between amplitudes in another unit, whatever it is
DENSITY = 1.2  # largest ratio of numbers of neighbours, see `_compare_frames`
VARIED = 6  # components of forces that no symmetry relates


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
    spread = [int(n) for n in np.linspace(0, len(graphs) - 1, READ)] if len(graphs) else []
    groups: dict[str, list[int]] = {}
    for number in dict.fromkeys(spread):
        frame = graphs.configuration(number)
        for name in (frame.where.rpartition(": ")[0], f"config_type {frame.config_type}"):
            groups.setdefault(name, []).append(number)
    parts = {n: own for n, own in groups.items() if FEWEST <= len(own) < len(set(spread))}
    # The whole set last, so that a message names the file if it can.
    for name in sorted(parts, key=lambda n: -len(parts[n]))[:GROUPS]:
        own = parts[name]
        chosen = np.unique(np.linspace(0, len(own) - 1, FRAMES).astype(int))
        _check_sample([graphs[own[n]] for n in chosen], num_types, cutoff, labels, name)
    _check_sample(list(graphs.spread(FRAMES)), num_types, cutoff, labels, "data.path")


def _check_sample(
    graphs: list[Batch], num_types: int, cutoff: float, labels: LabelConfig, where: str
) -> None:
    sample = [graph for graph in graphs if "forces" in graph]
    pair = _fit(sample, num_types, cutoff) if len(sample) >= FEWEST else None
    if pair is None:
        return
    predicted = [pair.predict(graph)[1] for graph in sample]
    for _ in range(REFITS):
        # Forces of both signs cancel in a fit: it is repeated for those frames that agree with it.
        correlations = list(map(_force_correlation, predicted, sample))
        agreeing = [graph for graph, value in zip(sample, correlations, strict=True) if value > 0]
        if len(agreeing) > len(sample) - 2 or len(agreeing) < FEWEST:
            break
        other = _fit(agreeing, num_types, cutoff)
        if other is None or other.pairs != pair.pairs:
            break
        predicted = [other.predict(graph)[1] for graph in sample]
    _compare_frames(predicted, sample, labels, where)
    varied = [_components(graph) >= VARIED for graph in sample]
    predicted = list(itertools.compress(predicted, varied))
    sample = list(itertools.compress(sample, varied))
    if not sample:
        return
    forces = np.concatenate([graph["forces"].numpy() for graph in sample])
    described = _correlation(np.concatenate(predicted), forces)
    energies = [graph for graph in sample if "energy" in graph]
    virials = [graph for graph in sample if "virial" in graph and bool(graph["pbc"].all())]
    compared = {}
    if energies:
        left_out = _left_out(energies, num_types)
        if len(energies) >= left_out.shape[1] + FEWEST:
            from_forces = np.array([pair.predict(graph)[0] for graph in energies])
            compared["energies"] = (
                _residual(from_forces, left_out),
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
        _compare_order(from_forces, stated, labels, where)
        compared["virials"] = from_forces.ravel(), stated.ravel()
    for label, (fitted, values) in compared.items():
        problem = _contradiction(fitted, values, described)
        if not problem:
            continue
        keys = "stress_key, virial_key" if label == "virials" else "energy_unit, force_unit"
        _refuse(f"{label} contradict the forces: {problem}", f"data.labels ({keys})", labels, where)


def _refuse(message: str, fix: str, labels: LabelConfig, where: str) -> None:
    if labels.force_unit is not None:
        log.warning("%s: %s", where, message)
        return
    raise DataError(
        message,
        where=where,
        allowed="forces -dE/dx, virials -volume * stress, in the units of data.labels",
        fix=f"{fix}, or data.labels.force_unit=NAME if they are right",
    )


_SHEARS = {"yz": 5, "xz": 2, "xy": 1}
"""Places of the components of shear in a flat tensor, in Voigt order."""


def _fit(sample: list[Batch], num_types: int, cutoff: float) -> PairPotential | None:
    # Without energies, which have a small weight otherwise.
    forces = [{name: graph[name] for name in graph if name != "energy"} for graph in sample]
    subset, no_energies = _Sample(forces), LossConfig(start_pref_e=0, limit_pref_e=0)
    return fit_pair_potential(subset, subset, num_types, cutoff, no_energies, functions=16)


def _force_correlation(predicted: np.ndarray, graph: Batch) -> float:
    return _correlation(predicted, graph["forces"].numpy())


def _components(graph: Batch) -> int:
    """Return the number of components of forces that no symmetry relates."""
    return len(np.unique(graph["forces"].abs().numpy().round(6)))


def _compare_frames(
    predictions: list[np.ndarray], sample: list[Batch], labels: LabelConfig, where: str
) -> None:
    """Refuse frames whose forces have the opposite sign or another unit than those of others.

    Args:
        predictions: forces of the pair potential.
        sample: the frames. Compared are those that the pair potential describes, with about as many
            neighbours as most: fitted to a crystal, it tells little of a surface.
        labels: as for `check_consistency`.
        where: for messages.
    """
    neighbours = [graph["edge_index"].shape[1] / len(graph["types"]) for graph in sample]
    usual, factors = float(np.median(neighbours)), []
    for graph, predicted, number in zip(sample, predictions, neighbours, strict=True):
        forces = graph["forces"].numpy()
        correlation = _force_correlation(predicted, graph)
        is_usual = usual / DENSITY <= number <= usual * DENSITY and _components(graph) >= 2 * VARIED
        if abs(correlation) >= CORRELATED and is_usual:
            size = float(np.linalg.norm(forces) / np.linalg.norm(predicted))
            factors.append(size if correlation > 0 else -size)
    values = np.array(factors or [0.0])
    small = np.abs(values) < np.abs(values).max() / FACTOR
    if 2 <= (count := int((values < 0).sum())) <= len(values) - 2:
        problem = f"{count} of {len(values)} have the opposite sign"
    elif 2 <= (count := int(small.sum())) <= len(values) - 2:
        factor = float(np.median(np.abs(values[~small])) / np.median(np.abs(values[small])))
        problem = f"{count} of {len(values)} are {factor:.3g} times smaller{_named(factor)}"
    else:
        return
    fix = "convert these frames, or leave them out"
    _refuse(f"forces of frames contradict each other: {problem}", fix, labels, where)


def _compare_order(
    predicted: np.ndarray, values: np.ndarray, labels: LabelConfig, where: str
) -> None:
    """Refuse six numbers whose shears are in another order, such as VASP's xy yz zx.

    Args:
        predicted: deviators of the pair potential, (frames, 9).
        values: those of the labels.
        labels: as for `check_consistency`.
        where: for messages.
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
            where,
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


def _contradiction(predicted: np.ndarray, values: np.ndarray, described: float) -> str:
    """Return how the labels differ from the prediction, "" if they fit or cannot be compared."""
    norms = np.linalg.norm(predicted), np.linalg.norm(values)
    if not min(norms) > 1e-9:
        return ""
    correlation, ratio = predicted @ values / (norms[0] * norms[1]), float(norms[1] / norms[0])
    if not min(abs(correlation), described) >= CORRELATED:
        return ""
    if correlation < 0:
        return f"they have the opposite sign (correlation {correlation:.2f})"
    is_close = min(correlation, described) >= CLOSE and _named(ratio)
    if is_close or not 1 / FACTOR <= ratio <= FACTOR:
        return f"they are {ratio:.3g} times as large as forces tell{_named(ratio)}"
    return ""


def _named(factor: float) -> str:
    """Return the usual units that a factor is near to, "" without one."""
    size = abs(np.log(factor))
    near = [f"{n} ({k:.4g})" for n, k in KNOWN.items() if abs(size - np.log(k)) < NEAR]
    return f", as if in another unit: {' or '.join(near)}" if near else ""
