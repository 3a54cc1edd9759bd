"""What normalises the variables: mean, spread and typical change, measured on the training part."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.data import Data
from scitoolkit.emulation.normalized_network import Statistics
from scitoolkit.io.campaign.statistics import Moments, fill_value_in

_logger = get_logger(__name__)
_BLOCK_BYTES = 64 * 2**20
_FIX = "mark them in the file, leave them out, or data.allow_suspect=true"


def measure(data: Data, blocks: Sequence[range], config: EmulationConfig) -> Statistics:
    """Measure the training part once, simulation by simulation: never another part.

    The moments of simulations are merged in the order of the index. A variable that does not
    change has scale 1, so that it becomes 0 and not NaN.

    Args:
        data: the opened campaign.
        blocks: samples of the training part, each range within one simulation.
        config: the job.

    Raises:
        DataError: values that look like unflagged fill values, or frames never written.
    """
    layout = data.layout
    state = layout.state if config.residual else ()
    values: dict[str, Moments] = {}
    changes: dict[str, Moments] = {}
    for block in blocks:
        found, steps = _of_simulation(data, block, state, config)
        values = {n: values[n].merge(m) if n in values else m for n, m in found.items()}
        changes |= {n: changes[n].merge(m) if n in changes else m for n, m in steps.items()}
    for name, variable in layout.variables.items():
        if variable.is_field and values[name].is_constant:
            _logger.warning("%s is constant in the training part", name)
    missing = torch.tensor(1.0)
    return Statistics(
        {n: (torch.from_numpy(m).float(), torch.from_numpy(s).float())
         for n, (m, s) in ((n, v.result()) for n, v in values.items())},
        {n: torch.from_numpy(changes[n].root_mean_square()).float() if n in changes else missing
         for n in state},
    )  # fmt: skip


def _of_simulation(
    data: Data, block: range, state: Sequence[str], config: EmulationConfig
) -> tuple[dict[str, Moments], dict[str, Moments]]:
    """Return the moments of the values and of the changes of one simulation."""
    layout, lead = data.layout, config.data.lead
    frame = sum(4 * int(np.prod(v.shape)) for v in layout.variables.values())
    size = max(lead + 1, _BLOCK_BYTES // max(frame, 1))
    source = data.source(np.arange(data.num_samples), [0])
    values = {n: Moments() for n in layout.variables}
    changes = {n: Moments() for n in state}
    zero_from = block.stop
    for first in range(block.start, block.stop, size):
        last = min(first + size, block.stop)
        read = source.read(np.arange(first, min(last + lead, block.stop)))
        zero_from = _zero_from(read, first, last, zero_from, block.stop)
        for name, variable in layout.variables.items():
            array = read[name][:, 0].astype(np.float64)
            per_field = variable.is_field
            values[name].add(array[: last - first], per_field)
            if not config.data.allow_suspect:
                _refuse_fills(data, name, array[: last - first], first)
            if name in changes and len(array) > lead:
                changes[name].add(array[lead:] - array[:-lead], per_field)
    if zero_from < block.stop and zero_from > block.start and not config.data.allow_suspect:
        raise DataError(
            f"every value is 0 from here to the end ({block.stop - zero_from} rows): allocated "
            "and never written?", where=data.campaign.where(zero_from), fix=_FIX,
        )  # fmt: skip
    return values, {n: m for n, m in changes.items() if m.count}


def _zero_from(read: dict[str, np.ndarray], first: int, last: int, before: int, stop: int) -> int:
    """Return the row from which on all variables are 0 everywhere, `stop` if the last is not."""
    rows = last - first
    zero = np.ones(rows, bool)
    for values in read.values():
        zero &= ~values[:rows].reshape(rows, -1).any(axis=1)
    if zero.all():
        return min(before, first)
    return first + int(np.flatnonzero(~zero)[-1]) + 1 if zero[-1] else stop


def _refuse_fills(data: Data, name: str, values: np.ndarray, first: int) -> None:
    found = fill_value_in(values)
    if found is None:
        return
    row = first + int(np.argmax((values == found).reshape(len(values), -1).any(axis=1)))
    count = int((values == found).sum())
    rest = values[values != found]
    raise DataError(
        f"{count} values are {found:g}, the others lie between {rest.min():g} and {rest.max():g}: "
        "a fill value that the file does not state?",
        where=f"{data.campaign.where(row)}, variable {name}", fix=_FIX,
    )  # fmt: skip
