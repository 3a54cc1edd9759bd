"""Loaders of training and validation batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.data import Data
from scitoolkit.emulation.variables import Variable
from scitoolkit.io.campaign.windows import CampaignWindows
from scitoolkit.io.loader import PlannedLoader


class HistoryWindows(CampaignWindows):
    """Windows with earlier values of the state as separate variables.

    Args:
        windows: of the variables, without history.
        offsets: samples of a window, relative to its start, ascending.
        earlier: inputs that are earlier values.
        lead: samples between two ages.
    """

    def __init__(
        self,
        windows: CampaignWindows,
        offsets: Sequence[int],
        earlier: Sequence[Variable],
        lead: int,
    ) -> None:
        ages = {v.name: v.age * lead for v in earlier}
        wanted = np.array(offsets)
        union = np.unique(np.concatenate([wanted, *(wanted - back for back in ages.values())]))
        super().__init__(
            windows.campaign, windows.sets, windows.starts, union.tolist(), dtype=windows.dtype
        )
        self.orders: dict[str, list[int]] = windows.orders
        self.columns: dict[str, tuple[str, np.ndarray]] = {
            v.name: (v.earlier_of, np.searchsorted(union, wanted - ages[v.name])) for v in earlier
        }
        self.present: np.ndarray = np.searchsorted(union, wanted)

    def assemble(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the variables and their earlier values, (samples, offsets, *dims) each."""
        variables = super().assemble(values)
        older = {name: variables[base][:, at] for name, (base, at) in self.columns.items()}
        return {**{name: array[:, self.present] for name, array in variables.items()}, **older}


def make_loader(
    data: Data,
    config: EmulationConfig,
    starts: np.ndarray,
    offsets: Sequence[int],
    *,
    train: bool,
    box: Mapping[str, slice] | None = None,
) -> PlannedLoader:
    """Return a loader of the windows that start at `starts`.

    Args:
        data: the opened campaign.
        config: the job.
        starts: first samples.
        offsets: samples of a window, relative to its start.
        train: shuffle, and use every window `config.repeats` times per epoch.
        box: {dim: slice} of the fields that this process reads of every sample; None if processes
            divide the samples instead.
    """
    rank, shares = config.training.share_of_batch()
    windows = data.source(starts, offsets, config.repeats if train else 1, box)
    if data.layout.earlier:
        windows = HistoryWindows(windows, offsets, data.layout.earlier, config.data.lead)
    return PlannedLoader(
        windows,
        config.training.batch_size,
        seed=config.training.seed,
        buffer=config.buffer,
        shuffle="exact" if train else False,
        rank=rank,
        world_size=shares,
    )
