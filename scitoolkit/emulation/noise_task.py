"""Training task of probabilistic emulators: the fair CRPS of members that differ by their noise."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from scitoolkit.core.contracts import Batch, Progress
from scitoolkit.core.devices import to_host
from scitoolkit.emulation.noise import TRAINING, VALIDATION, fair_crps, noise_of
from scitoolkit.emulation.task import EmulationTask
from scitoolkit.emulation.variables import NOISE


class NoiseTask(EmulationTask):
    """Training of an emulator whose input is noise, over one or more steps.

    Every sample of a batch has several members, of which each draws its own noise in every step and
    continues its own state. Guards and diagnostic outputs act on each.

    Args:
        members: draws of a sample, 2 or more.
        seed: of the noise.
        settings: of `EmulationTask`.
    """

    score = "crps"

    def __init__(self, *settings: Any, members: int, seed: int) -> None:
        super().__init__(*settings)
        self._members, self._seed, self._step = members, seed, 0

    def at(self, progress: Progress) -> None:
        """Receive the progress of the training, on which the noise depends."""
        super().at(progress)
        self._step = progress.step

    def _with_draws(self, batch: Batch, *, training: bool) -> Batch:
        """Return a batch with the noise of all members, (B, step, members * values)."""
        first = batch[self.layout.state[0]]
        seeds = (self._seed, *((TRAINING, self._step) if training else (VALIDATION, 0)))
        shape = first.shape[1], self._members * self.layout.noise
        states = to_host(first[:, 0].contiguous())
        drawn = np.stack([noise_of(state, shape, *seeds) for state in states])
        return {**batch, NOISE: torch.from_numpy(drawn).to(first)}

    def _expanded(self, batch: Batch) -> Batch:
        """Return a batch of (B * members, step, *dims), in which the noise is that of a member."""
        m, noise = self._members, batch[NOISE]
        many = {n: v.repeat_interleave(m, 0) for n, v in batch.items() if n != NOISE}
        own = noise.unflatten(2, (m, -1)).movedim(2, 1).flatten(0, 1)
        return {**many, NOISE: own}

    def _penalty(self, errors: Tensor) -> Tensor:
        """Return the fair CRPS (B, ...) of scaled errors (B * members, ...)."""
        return fair_crps(errors.unflatten(0, (-1, self._members)))
