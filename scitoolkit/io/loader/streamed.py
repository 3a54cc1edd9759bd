"""Loader of simulations that are computed during training, through a bounded reservoir."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from scitoolkit.core.contracts import Batch
from scitoolkit.io.loader.cursor import CursorLoader, digest, tensors
from scitoolkit.io.loader.order import EpochOrder
from scitoolkit.io.loader.reservoir import SimulationReservoir
from scitoolkit.io.loader.reservoir_schedule import ReservoirSchedule

Parameters = Mapping[str, float]
Chooser = Callable[[int], Parameters]
"""Returns the parameters of a simulation by number, chosen from the state of the training."""


class SimulationStream(Protocol):
    """Simulations by number, computed in the background in the order of submission."""

    def order(self, number: int, parameters: Parameters | None = None) -> None:
        """Submit a simulation, with parameters unless its number determines them."""

    def take(self, number: int, out: Mapping[str, np.ndarray]) -> None:
        """Write a submitted simulation into arrays; wait for it if necessary."""

    def forget(self) -> None:
        """Cancel all submitted simulations and drop their results."""

    def poll(self) -> None:
        """Receive finished simulations and pass new ones to the workers, without waiting."""

    def extracted(self, path: Path) -> dict[str, np.ndarray]:
        """Return the arrays of a simulation in a file, in the stream's form."""

    def describe(self) -> dict[str, Any]:
        """Return the inputs of the simulations (JSON types)."""

    def stats(self) -> dict[str, Any]:
        """Return counters: simulations computed, CPU seconds, replacements."""

    def close(self) -> None:
        """Stop the workers."""


class ReservoirLoader(CursorLoader):
    """Loader of windows of streamed simulations, independent of the timing of the workers.

    An epoch has the number of batches that draws the whole reservoir once; the stream continues
    across epochs. A resumed training repeats the schedule without data, and computes the
    simulations that were in the reservoir again.

    Args:
        stream: computes the simulations.
        reservoir: memory for the simulations.
        schedule: contents of the reservoir and batches by step.
        first: writes one of the first `capacity` simulations, which exist already, into arrays.
        ahead: number of simulations submitted before they are due.

    Attributes:
        choose: returns the parameters of each further simulation; None for those of the stream. It
            is called at a step that depends only on the schedule.
    """

    def __init__(
        self,
        stream: SimulationStream,
        reservoir: SimulationReservoir,
        schedule: ReservoirSchedule,
        *,
        first: Callable[[int, Mapping[str, np.ndarray]], None],
        ahead: int,
    ) -> None:
        order = EpochOrder(len(reservoir), schedule.batch_size, schedule.seed, drop_last=True)
        super().__init__(reservoir, order, 0, 1)
        self.stream: SimulationStream = stream
        self.reservoir: SimulationReservoir = reservoir
        self.schedule: ReservoirSchedule = schedule
        self.ahead: int = ahead
        self.choose: Chooser | None = None
        self._first = first
        self._held: list[int | None] = [None] * reservoir.capacity
        self._ordered = schedule.capacity
        self._fingerprint = digest(
            {**reservoir.describe(), **schedule.identity(), **stream.describe(), "ahead": ahead}
        )

    def _batches_from(self, epoch: int, step: int) -> Iterator[Batch]:
        position = epoch * len(self) + step
        if self.schedule.step != position or None in self._held:
            self._go_to(position)
        for _ in range(step, len(self)):
            self.stream.poll()
            for slot in self.schedule.feed():
                self._enter(slot)
            self._order_ahead()
            yield tensors(self.reservoir.read(self.schedule.draw()))

    def _go_to(self, position: int) -> None:
        """Restore the contents of the reservoir before the batch of a step."""
        schedule = self.schedule
        schedule.go_to(position)
        self.stream.forget()
        wanted = [s for s, n in enumerate(schedule.slots) if self._held[s] != n]
        wanted.sort(key=lambda slot: schedule.slots[slot])
        missing = [s for s in wanted if schedule.slots[s] >= schedule.capacity]
        for slot in missing:
            self.stream.order(schedule.slots[slot])
        self._ordered = schedule.entered
        if position:  # their parameters were chosen before this step
            while self._ordered < min(schedule.total, schedule.entered + self.ahead):
                self.stream.order(self._ordered)
                self._ordered += 1
        for slot in wanted:
            self._enter(slot)

    def _enter(self, slot: int) -> None:
        number = self.schedule.slots[slot]
        # Stays None if the simulation fails, so that nothing is drawn from the slot.
        self._held[slot] = None
        into = self.reservoir.slot(slot)
        if number < self.schedule.capacity:
            self._first(number, into)
        else:
            while self._ordered <= number:  # more are due at one step than `ahead`
                self._order_next()
            self.stream.take(number, into)
        self._held[slot] = number
        self.reservoir.bytes_read += self.reservoir.simulation_nbytes

    def _order_ahead(self) -> None:
        while self._ordered < min(self.schedule.total, self.schedule.entered + self.ahead):
            self._order_next()
        self.stream.poll()

    def _order_next(self) -> None:
        chosen = None if self.choose is None else self.choose(self._ordered)
        self.stream.order(self._ordered, chosen)
        self._ordered += 1

    def explain(self) -> dict[str, Any]:
        """Return a summary of the loader: windows, batches, simulations, memory in bytes."""
        one = self.reservoir.simulation_nbytes
        return {
            **super().explain(),
            "order": "drawn from a reservoir of streamed simulations",
            "simulations_held": self.schedule.capacity,
            "simulations_in_all": self.schedule.total,
            "windows_of_a_simulation": self.schedule.windows,
            "reservoir_bytes": self.reservoir.nbytes,
            "ahead_bytes": self.ahead * one,
        }

    def stats(self) -> dict[str, Any]:
        """Return counters of the loader and of the stream."""
        return {
            **super().stats(),
            "simulations_entered": self.schedule.entered,
            **self.stream.stats(),
        }

    def close(self) -> None:
        """Stop the workers."""
        self.stream.close()
