"""Training batches by the planned loader."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.data import Data
from scitoolkit.io.loader import PlannedLoader
from scitoolkit.training import current_rank, world_size


def make_loader(
    data: Data, config: EmulationConfig, starts: np.ndarray, offsets: Sequence[int], *, train: bool
) -> PlannedLoader:
    """Return a loader of the windows that begin at `starts`.

    Args:
        data: the opened campaign.
        config: the job.
        starts: first samples.
        offsets: samples of a window, relative to its start.
        train: shuffled, and every window `config.repeats` times an epoch.
    """
    windows = data.source(starts, offsets, config.repeats if train else 1)
    return PlannedLoader(
        windows, config.training.batch_size, seed=config.training.seed, buffer=config.buffer,
        shuffle="exact" if train else False, rank=current_rank(), world_size=world_size(),
    )  # fmt: skip
