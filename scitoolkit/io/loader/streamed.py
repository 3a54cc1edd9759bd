"""A loader of simulations that are made while the training runs: a bounded, exact reservoir."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from scitoolkit.core.contracts import Batch
from scitoolkit.io.loader.cursor import CursorLoader, digest, tensors
from scitoolkit.io.loader.order import EpochOrder
from scitoolkit.io.loader.reservoir import Reservoir
from scitoolkit.io.loader.reservoir_schedule import ReservoirSchedule

Parameters = Mapping[str, float]
Chooser = Callable[[int], Parameters]
"""Parameters of the simulation of a number, chosen from the state of the training."""


class SimulationStream(Protocol):
    """Simulations by number, made in the background in the order in which they were ordered."""

    def order(self, number: int, parameters: Parameters | None = None) -> None:
        """Ask for a simulation; with parameters that its number does not already decide."""

    def take(self, number: int, out: Mapping[str, np.ndarray]) -> None:
        """Write a simulation that was ordered into arrays; wait for it if need be."""

    def forget(self) -> None:
        """Drop all orders and what was made of them."""

    def poll(self) -> None:
        """Receive what is finished and give the workers the next orders; does not wait."""

    def extracted(self, path: Path) -> dict[str, np.ndarray]:
        """Return the arrays of a simulation in a file, as those of the stream."""

    def describe(self) -> dict[str, Any]:
        """Return what the simulations depend on (JSON types)."""

    def stats(self) -> dict[str, Any]:
        """Return what has happened: simulations made, CPU seconds, replacements."""

    def close(self) -> None:
        """End the workers."""


class ReservoirLoader(CursorLoader):
    """Batches of windows of streamed simulations, the same for any timing of the workers.

    An epoch has as many batches as draw the whole reservoir once; the stream goes on from one to
    the next. A resumed training repeats the schedule, which needs no data, and asks anew for the
    simulations that were in the reservoir.

    Args:
        stream: makes the simulations.
        reservoir: holds them.
        schedule: which one is where at which step.
        first: writes one of the first `capacity` simulations, which exist already, into arrays.
        ahead: simulations that are ordered before they are due.

    Attributes:
        choose: parameters of each further simulation; those that the stream knows if None. It is
            called at a step that depends on the schedule alone.
    """

    def __init__(
        self, stream: SimulationStream, reservoir: Reservoir, schedule: ReservoirSchedule, *,
        first: Callable[[int, Mapping[str, np.ndarray]], None], ahead: int,
    ) -> None:  # fmt: skip
        order = EpochOrder(len(reservoir), schedule.batch_size, schedule.seed, drop_last=True)
        super().__init__(reservoir, order, 0, 1)
        self.stream: SimulationStream = stream
        self.reservoir: Reservoir = reservoir
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
        """Fill the reservoir with what it held before the batch of a step."""
        schedule = self.schedule
        schedule.go_to(position)
        self.stream.forget()
        wanted = [s for s, n in enumerate(schedule.slots) if self._held[s] != n]
        wanted.sort(key=lambda slot: schedule.slots[slot])
        missing = [s for s in wanted if schedule.slots[s] >= schedule.capacity]
        for slot in missing:
            self.stream.order(schedule.slots[slot])
        self._ordered = schedule.entered
        if position:  # those of the simulations to come were given before this step
            while self._ordered < min(schedule.total, schedule.entered + self.ahead):
                self.stream.order(self._ordered)
                self._ordered += 1
        for slot in wanted:
            self._enter(slot)

    def _enter(self, slot: int) -> None:
        number = self.schedule.slots[slot]
        # Left undefined if the simulation cannot be made: nothing must be drawn from it.
        self._held[slot] = None
        into = self.reservoir.slot(slot)
        if number < self.schedule.capacity:
            self._first(number, into)
        else:
            while self._ordered <= number:  # more are due at one step than are made ahead
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
        """Return what is going to happen: windows, batches, simulations, memory in bytes."""
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
        """Return what has happened: batches, seconds waited, and what the stream tells."""
        return {**super().stats(), "simulations_entered": self.schedule.entered,
                **self.stream.stats()}  # fmt: skip

    def close(self) -> None:
        """End the workers."""
        self.stream.close()
