"""Schedule of the windows of streamed simulations, as a function of the seed.

Simulations are numbered, and enter a reservoir of fixed size in this order. One may be replaced
once each of its windows was drawn `repeats` times. The schedule does not depend on when workers
deliver simulations: late ones are waited for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scitoolkit.core.errors import ConfigError

_SLOTS, _WINDOWS = 1, 2


class ReservoirSchedule:
    """Contents of a reservoir and batches drawn from it, step by step.

    Simulation n is due after the number of batches that draw every window of the n simulations
    before it `repeats` times. It then replaces, as soon as one may leave, the simulation with the
    most draws. The numbers of windows per simulation in a batch differ by at most one. The windows
    of a simulation are drawn in a random order, which is renewed after all were drawn.

    Args:
        capacity: number of simulations in the reservoir.
        windows: number of windows per simulation.
        batch_size: windows per batch.
        seed: of the draws.
        repeats: number of draws of each window before its simulation may leave.
        total: total number of simulations; the last `capacity` remain.

    Attributes:
        step: number of batches drawn.
        entered: number of simulations that have entered the reservoir.
        slots: number of the simulation in each slot.

    Raises:
        ConfigError: a batch is larger than the reservoir, or there are too few simulations.

    Example:
        >>> schedule = ReservoirSchedule(2, 3, 2, total=4)
        >>> for _ in range(6):
        ...     entering, batch = schedule.feed(), schedule.draw()
        >>> schedule.slots, schedule.entered
        ([2, 3], 4)
    """

    def __init__(
        self,
        capacity: int,
        windows: int,
        batch_size: int,
        *,
        seed: int = 0,
        repeats: int = 1,
        total: int,
    ) -> None:
        if total < capacity:
            raise ConfigError(
                f"a reservoir of {capacity} simulations, and {total} in all",
                fix=f"a reservoir of {total}, or more samples",
            )
        if batch_size > capacity * windows:
            raise ConfigError(
                f"a batch of {batch_size}, and a reservoir of {capacity} simulations of {windows} "
                "windows",
                fix=f"a reservoir of {-(-batch_size // windows)}, or a smaller batch",
            )
        self.capacity: int = capacity
        self.windows: int = windows
        self.batch_size: int = batch_size
        self.seed: int = seed
        self.repeats: int = repeats
        self.total: int = total
        self.reset()

    def reset(self) -> None:
        """Return to the first step."""
        self.step: int = 0
        self.entered: int = self.capacity
        self.slots: list[int] = list(range(self.capacity))
        self._drawn = [0] * self.capacity
        self._orders: list[np.ndarray] = [np.empty(0, np.int64)] * self.capacity

    def feed(self) -> list[int]:
        """Insert the simulations that are due before this step's batch; return their slots."""
        entering: list[int] = []
        once = self.windows * self.repeats
        while self.entered < self.total and self.step * self.batch_size >= self.entered * once:
            # The simulation with the most draws, of several the oldest.
            slot = max(range(self.capacity), key=lambda s: (self._drawn[s], -self.slots[s]))
            if self._drawn[slot] < once:
                break
            self.slots[slot], self._drawn[slot] = self.entered, 0
            self.entered += 1
            entering.append(slot)
        return entering

    def draw(self) -> np.ndarray:
        """Return this step's windows, `slot * windows + window`, and advance to the next step."""
        rng = np.random.default_rng([self.seed, _SLOTS, self.step])
        laps, rest = divmod(self.batch_size, self.capacity)
        slots = np.tile(np.arange(self.capacity), laps)
        slots = np.concatenate([slots, rng.permutation(self.capacity)[:rest]])
        self.step += 1
        return np.array([s * self.windows + self._next_window(s) for s in slots.tolist()])

    def _next_window(self, slot: int) -> int:
        lap, place = divmod(self._drawn[slot], self.windows)
        if place == 0:
            # By the number of the simulation: the order of its windows does not depend on its slot.
            keys = [self.seed, _WINDOWS, self.slots[slot], lap]
            self._orders[slot] = np.random.default_rng(keys).permutation(self.windows)
        self._drawn[slot] += 1
        return int(self._orders[slot][place])

    def go_to(self, step: int) -> None:
        """Move to `step` by repeating the schedule, without data."""
        if step < self.step:
            self.reset()
        while self.step < step:
            self.feed()
            self.draw()

    def needed(self, steps: int) -> int:
        """Return the number of simulations required for the first `steps` batches."""
        other = ReservoirSchedule(
            self.capacity,
            self.windows,
            self.batch_size,
            seed=self.seed,
            repeats=self.repeats,
            total=self.total,
        )
        other.go_to(steps)
        return other.entered

    def identity(self) -> dict[str, Any]:
        """Return the inputs of the schedule (JSON types)."""
        return {
            "capacity": self.capacity,
            "windows": self.windows,
            "batch_size": self.batch_size,
            "seed": self.seed,
            "repeats": self.repeats,
            "total": self.total,
        }
