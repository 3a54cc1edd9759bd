"""Which windows of streamed simulations are trained on at which step: a function of the seed alone.

Simulations are numbered, and enter a reservoir of fixed size in the order of their numbers. One
may be replaced once each of its windows was drawn `repeats` times. When a simulation arrives from
a worker has no influence: a late one is waited for.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from scitoolkit.core.errors import ConfigError

_SLOTS, _WINDOWS = 1, 2


class ReservoirSchedule:
    """The contents of a reservoir and the batches drawn from it, step by step.

    Simulation n is due after as many batches as draw every window of the n simulations before it
    `repeats` times, and enters at the first step from then on at which one may leave: of those
    the most drawn one. A batch has the same number of windows of each simulation, up to one; the
    windows of a simulation come in a new random order each time that all were drawn.

    Args:
        capacity: simulations held.
        windows: windows of a simulation.
        batch_size: windows of a batch.
        seed: of the draws.
        repeats: times that each window is drawn before its simulation may leave.
        total: simulations that there are; the last `capacity` stay.

    Attributes:
        step: batches drawn.
        entered: simulations that were or are in the reservoir.
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
        self, capacity: int, windows: int, batch_size: int, *, seed: int = 0, repeats: int = 1,
        total: int,
    ) -> None:  # fmt: skip
        if total < capacity:
            raise ConfigError(
                f"a reservoir of {capacity} simulations, and {total} in all",
                fix=f"a reservoir of {total}, or more samples",
            )
        if batch_size > capacity * windows:
            raise ConfigError(
                f"a batch of {batch_size}, and a reservoir of {capacity} simulations of {windows} "
                "windows", fix=f"a reservoir of {-(-batch_size // windows)}, or a smaller batch",
            )  # fmt: skip
        self.capacity: int = capacity
        self.windows: int = windows
        self.batch_size: int = batch_size
        self.seed: int = seed
        self.repeats: int = repeats
        self.total: int = total
        self.reset()

    def reset(self) -> None:
        """Go back to the first step."""
        self.step: int = 0
        self.entered: int = self.capacity
        self.slots: list[int] = list(range(self.capacity))
        self._drawn = [0] * self.capacity
        self._orders: list[np.ndarray] = [np.empty(0, np.int64)] * self.capacity

    def feed(self) -> list[int]:
        """Let the simulations enter that are due before this step's batch; return their slots."""
        entering: list[int] = []
        once = self.windows * self.repeats
        while self.entered < self.total and self.step * self.batch_size >= self.entered * once:
            # The most drawn one, the older of two alike.
            slot = max(range(self.capacity), key=lambda s: (self._drawn[s], -self.slots[s]))
            if self._drawn[slot] < once:
                break
            self.slots[slot], self._drawn[slot] = self.entered, 0
            self.entered += 1
            entering.append(slot)
        return entering

    def draw(self) -> np.ndarray:
        """Return this step's windows, slot * windows + window, and go on to the next step."""
        rng = np.random.default_rng([self.seed, _SLOTS, self.step])
        each, rest = divmod(self.batch_size, self.capacity)
        slots = np.tile(np.arange(self.capacity), each)
        slots = np.concatenate([slots, rng.permutation(self.capacity)[:rest]])
        self.step += 1
        return np.array([s * self.windows + self._next_window(s) for s in slots.tolist()])

    def _next_window(self, slot: int) -> int:
        lap, place = divmod(self._drawn[slot], self.windows)
        if place == 0:
            keys = [self.seed, _WINDOWS, self.slots[slot], lap]
            self._orders[slot] = np.random.default_rng(keys).permutation(self.windows)
        self._drawn[slot] += 1
        return int(self._orders[slot][place])

    def go_to(self, step: int) -> None:
        """Repeat all steps before `step`, which needs no data."""
        if step < self.step:
            self.reset()
        while self.step < step:
            self.feed()
            self.draw()

    def needed(self, steps: int) -> int:
        """Return the simulations that have entered before the batch of step `steps` - 1."""
        other = ReservoirSchedule(
            self.capacity, self.windows, self.batch_size, seed=self.seed, repeats=self.repeats,
            total=self.total,
        )  # fmt: skip
        other.go_to(steps)
        return other.entered

    def identity(self) -> dict[str, Any]:
        """Return what the draws depend on (JSON types)."""
        return {
            "capacity": self.capacity, "windows": self.windows, "batch_size": self.batch_size,
            "seed": self.seed, "repeats": self.repeats, "total": self.total,
        }  # fmt: skip
