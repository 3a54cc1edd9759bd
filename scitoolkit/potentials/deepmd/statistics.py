"""Statistics of environment matrices, and numbers of neighbours for `sel`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from logging import Logger

import torch
from torch import Tensor

from scitoolkit.core.contracts import Batch
from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.ops.environment_matrix.reference import environment_rows
from scitoolkit.ops.environment_matrix.spec import EnvironmentSpec
from scitoolkit.potentials.graph import edge_vectors

log: Logger = get_logger(__name__)
LEAST_DEVIATION = 1e-2
SEL_MARGIN, SEL_MULTIPLE = 1.1, 4


def environment_statistics(spec: EnvironmentSpec, graphs: Iterable[Batch]) -> tuple[Tensor, Tensor]:
    """Return mean and standard deviation of the environment rows, (types, columns) each, float64.

    Absent neighbours count as zero rows. Only the column s has a mean; x, y and z share one
    deviation, so that the normalised rows rotate with the atoms. As deepmd-kit's davg and dstd.
    """
    types, slots = spec.num_types, sum(spec.sel)
    number = torch.zeros(types, dtype=torch.float64)
    sums = torch.zeros(types, spec.columns, dtype=torch.float64)
    squares = torch.zeros_like(sums)
    for graph in graphs:
        rows = environment_rows(spec, edge_vectors(graph))
        centre_types = graph["types"][graph["edge_index"][0]]
        sums.index_add_(0, centre_types, rows)
        squares.index_add_(0, centre_types, rows**2)
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


def max_neighbours(graphs: Iterable[Batch], num_types: int) -> list[int]:
    """Return the largest number of neighbours of each type that any atom has.

    Raises:
        DataError: there is no graph.
    """
    most = None
    for graph in graphs:
        counts = graph["segments"].diff().view(-1, num_types).amax(dim=0)
        most = counts if most is None else torch.maximum(most, counts)
    if most is None:
        raise DataError("there is no frame to count neighbours in")
    return most.tolist()


def suggest_sel(most: Sequence[int]) -> list[int]:
    """Return `sel` for counted neighbours: 10 % more, rounded up to a multiple of 4.

    Example:
        >>> suggest_sel([38, 0])
        [44, 4]
    """
    return [max(1, int(-(-n * SEL_MARGIN // SEL_MULTIPLE))) * SEL_MULTIPLE for n in most]


def warn_of_overflow(most: Sequence[int], sel: Sequence[int], type_map: Sequence[str]) -> None:
    """Warn of types with more neighbours than `sel`, which the model sums nevertheless."""
    for name, neighbours, allowed in zip(type_map, most, sel, strict=True):
        if neighbours > allowed:
            log.warning(
                "up to %d neighbours of type %s, but model.sel says %d: all are summed here, "
                "deepmd-kit would leave out the farthest",
                neighbours,
                name,
                allowed,
            )
