"""Training of one emulator for several leads, from batches that hold the samples of all leads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from scitoolkit.core.contracts import Batch
from scitoolkit.emulation.variables import LEAD


def offsets_of(leads: Sequence[int], steps: int) -> list[int]:
    """Return the samples of a window that holds `steps` steps of every lead, ascending.

    Example:
        >>> offsets_of([1, 4], 2)
        [0, 1, 2, 4, 8]
    """
    return sorted({step * lead for lead in leads for step in range(steps + 1)})


@dataclass(frozen=True)
class Leads:
    """Leads of one emulator and the growth of the state's change with the lead.

    Attributes:
        values: the leads, in samples.
        growth: {lead: {output: its typical change relative to that after `data.lead`}}; without
            outputs that are not learned as changes.
    """

    values: tuple[int, ...]
    growth: Mapping[int, Mapping[str, float]]

    def draw(self) -> int:
        """Draw a lead from torch's generator, whose state is restored on resume."""
        return self.values[int(torch.randint(len(self.values), ()))]

    def of(self, batch: Batch, lead: int) -> Batch:
        """Return a batch of the steps of one lead: (B, step, *dims) each, and the lead, (B, step).

        Args:
            batch: variables at all of `offsets_of(values, steps)`.
            lead: one of the leads.
        """
        columns = next(iter(batch.values())).shape[1]
        steps = self._steps(columns)
        offsets = offsets_of(self.values, steps)
        at = torch.from_numpy(np.searchsorted(offsets, np.arange(steps + 1) * lead))
        chosen = {n: v.index_select(1, at.to(v.device)) for n, v in batch.items()}
        first = next(iter(chosen.values()))
        return {**chosen, LEAD: first.new_full(first.shape[:2], float(lead))}

    def _steps(self, columns: int) -> int:
        """Return the number of steps of each lead in a window of `columns` samples."""
        steps = 1
        while len(offsets_of(self.values, steps)) < columns:
            steps += 1
        return steps
