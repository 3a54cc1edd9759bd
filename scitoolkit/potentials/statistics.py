"""What is measured on the training set before training: energies of species, environments, sel."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.ops.environment_matrix.reference import environment_rows
from scitoolkit.ops.environment_matrix.spec import EnvironmentSpec

log = get_logger(__name__)
LEAST_DEVIATION = 1e-2
SEL_MARGIN, SEL_MULTIPLE = 1.1, 4


def energy_shifts(counts: np.ndarray, energies: np.ndarray) -> np.ndarray:
    """Return the energy of each species that explains the frames' energies best.

    Least squares over frames; where compositions do not tell the species apart (water at one
    composition) the shortest of all best solutions, which gives the same total.

    Args:
        counts: (frames, species) atoms.
        energies: (frames,) eV.

    Example:
        >>> energy_shifts(np.array([[1.0, 2.0], [2.0, 4.0]]), np.array([-5.0, -10.0])).tolist()
        [-1.0, -2.0]
    """
    shifts = np.linalg.lstsq(counts, energies, rcond=None)[0]
    return np.round(shifts, 12)


def composition(graphs: Iterable[Batch], num_types: int) -> tuple[np.ndarray, np.ndarray]:
    """Return (frames, types) numbers of atoms, and (frames,) energies in eV."""
    counts, energies = [], []
    for graph in graphs:
        for frame, energy in enumerate(graph["energy"].tolist()):
            types = graph["types"][graph["frame"] == frame]
            counts.append(torch.bincount(types, minlength=num_types).numpy())
            energies.append(energy)
    return np.array(counts, dtype=np.float64), np.array(energies)


def equivariant_statistics(model: nn.Module, graphs: Sequence[Batch]) -> None:
    """Set the buffers `shift`, `scale` (rms force, eV/Å) and `average_neighbours` of a model."""
    counts, energies = composition(graphs, len(model.get_buffer("shift")))
    atoms = sum(len(graph["types"]) for graph in graphs)
    edges = sum(graph["edge_index"].shape[1] for graph in graphs)
    forces = [graph["forces"].flatten() for graph in graphs if "forces" in graph]
    with torch.no_grad():
        model.get_buffer("shift").copy_(torch.from_numpy(energy_shifts(counts, energies)))
        model.get_buffer("average_neighbours").fill_(max(1.0, edges / max(1, atoms)))
        if forces:
            scale = float(torch.cat(forces).square().mean().sqrt())
            model.get_buffer("scale").fill_(scale or 1.0)


def environment_statistics(
    spec: EnvironmentSpec, graphs: Iterable[Batch], vectors: Sequence[Tensor] | None = None
) -> tuple[Tensor, Tensor]:
    """Return mean and deviation of the environment rows by centre type, absent neighbours as 0.

    Only the column s has a mean; x, y, z share one deviation, so that rotations commute with the
    normalisation. As deepmd-kit's davg and dstd, shape (type, column).
    """
    from scitoolkit.potentials.graph import edge_vectors

    types, slots = spec.num_types, sum(spec.sel)
    number = torch.zeros(types, dtype=torch.float64)
    sums = torch.zeros(types, spec.columns, dtype=torch.float64)
    squares = torch.zeros_like(sums)
    for graph in graphs:
        rows = environment_rows(spec, edge_vectors(graph))
        own = graph["types"][graph["edge_index"][0]]
        sums.index_add_(0, own, rows)
        squares.index_add_(0, own, rows**2)
        number += torch.bincount(graph["types"], minlength=types) * slots
    mean = torch.zeros_like(sums)
    deviation = torch.full_like(sums, 1.0 / spec.cutoff)
    for kind in range(types):
        if number[kind] == 0:
            continue
        mean[kind, 0] = sums[kind, 0] / number[kind]
        variance = squares[kind, 0] / number[kind] - mean[kind, 0] ** 2
        deviation[kind, 0] = variance.clamp_min(0).sqrt()
        if not spec.radial:
            average = sums[kind, 1:].sum() / 3 / number[kind]
            variance = squares[kind, 1:].sum() / 3 / number[kind] - average**2
            deviation[kind, 1:] = variance.clamp_min(0).sqrt()
        deviation[kind].clamp_(min=LEAST_DEVIATION)
    return mean, deviation


def most_neighbours(graphs: Iterable[Batch], num_types: int) -> list[int]:
    """Return the largest number of neighbours of each type that any atom has.

    Raises:
        DataError: no graph at all.
    """
    most = None
    for graph in graphs:
        counts = graph["segments"].diff().view(-1, num_types).amax(dim=0)
        most = counts if most is None else torch.maximum(most, counts)
    if most is None:
        raise DataError("no frame to count neighbours in")
    return most.tolist()


def chosen_sel(most: Sequence[int]) -> list[int]:
    """Return `sel` for the counted neighbours: a tenth more, up to the next multiple of 4.

    Example:
        >>> chosen_sel([38, 0])
        [44, 4]
    """
    return [max(1, int(-(-n * SEL_MARGIN // SEL_MULTIPLE))) * SEL_MULTIPLE for n in most]


def warn_of_overflow(most: Sequence[int], sel: Sequence[int], type_map: Sequence[str]) -> None:
    """Say which types have more neighbours than `sel`; the model sums them all the same."""
    for name, found, allowed in zip(type_map, most, sel, strict=True):
        if found > allowed:
            log.warning(
                "up to %d neighbours of type %s, but model.sel says %d: all are summed here, "
                "deepmd-kit would leave out the farthest", found, name, allowed,
            )  # fmt: skip
