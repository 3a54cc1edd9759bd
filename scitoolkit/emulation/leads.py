"""One emulator of several leads: batches hold the samples of all, and each is drawn or scored."""

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
    """Leads that one emulator learns, and how far the state moves in each.

    Attributes:
        values: the leads, in samples.
        growth: {lead: {output: size of its change over that after the lead which normalises}};
            outputs that are not learned as changes are left out.
    """

    values: tuple[int, ...]
    growth: Mapping[int, Mapping[str, float]]

    def draw(self) -> int:
        """Return one of the leads, from torch's generator, as a resumed run draws."""
        return self.values[int(torch.randint(len(self.values), ()))]

    def of(self, batch: Batch, lead: int) -> Batch:
        """Return the steps of one lead: (B, step, *dims) each, and the lead, (B, step).

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
        """Return the steps of each lead in a window of so many samples."""
        steps = 1
        while len(offsets_of(self.values, steps)) < columns:
            steps += 1
        return steps
