"""Forecasters that map the state one step on and are fed with their own output."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple

import numpy as np

from scitoolkit.forecasting.forecasters.base import (
    Forecaster,
    Memo,
    Subspace,
    once,
    prefixed,
    within,
)
from scitoolkit.forecasting.forecasters.frames import Frame, Modes, fitted_frame, unbroken
from scitoolkit.forecasting.windows import Array, Series, Windows

LIMIT = 1e3
"""Standard deviations at which a diverging forecast is held."""


class Rolling(NamedTuple):
    """State of a rollout: what the map needs, and the decimal years of the steps to come."""

    memory: list[Array]
    years: Array
    lead: int


class Recursive(Forecaster):
    """A map of states in a frame; a state is a list of arrays, the newest coordinates first.

    Args:
        frame: the coordinates.
        lags: steps that a start reads.
        reach: steps before a row that its fit reads, at least lags - 1.
    """

    recursive: ClassVar[bool] = True

    def __init__(self, frame: Frame, lags: int = 1, reach: int | None = None) -> None:
        self.frame: Frame = frame
        self.lags: int = lags
        self.reach: int = lags - 1 if reach is None else reach

    @abstractmethod
    def key(self) -> tuple[Any, ...]:
        """Return what `prepare` depends on: candidates of the same key share its result."""

    @abstractmethod
    def prepare(self, stretches: Sequence[Array]) -> Any:
        """Return what does not depend on the penalty, from stretches of (time, coordinate)."""

    @abstractmethod
    def solve(self, prepared: Any) -> None:
        """Set the coefficients for the penalty of this model."""

    @abstractmethod
    def advance(self, memory: list[Array]) -> list[Array]:
        """Return the memory one step on."""

    @abstractmethod
    def fitted(self) -> dict[str, np.ndarray]:
        """Return the coefficients."""

    @abstractmethod
    def set_fitted(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Set what `fitted` returned."""

    def fit(self, segments: Sequence[Series], memo: Memo | None = None) -> Recursive:
        """Fit the frame, then the map on the coordinates of all stretches that are long enough."""
        self.frame = fitted_frame(self.frame, segments, memo)
        unbroken(segments, self.reach + 2)
        encoded = once(
            memo, ("record", *self.frame.key), lambda: [self.frame.encode(*s) for s in segments]
        )
        prepared = once(
            memo, (*self.frame.key, *self.key()),
            lambda: self.prepare([z for z in encoded if len(z) >= self.reach + 2]),
        )  # fmt: skip
        self.solve(prepared)
        return self

    def memory_of(self, lagged: list[Array]) -> list[Array]:
        """Return the memory at a start, from the last `lags` coordinates, newest first."""
        return lagged

    def start(self, windows: Windows) -> Rolling:
        """Return the state at the last input of every window."""
        years = windows.input_years()
        lagged = [self.frame.encode(windows.lagged(k), years[:, -1 - k]) for k in range(self.lags)]
        return Rolling(self.memory_of(lagged), windows.output_years(), 0)

    def step(self, state: Rolling) -> tuple[Rolling, Array]:
        """Return the state one step on, and its values (window, cell)."""
        memory = self.bounded(state.memory)
        values = self.frame.decode(memory[0], state.years[:, state.lead])
        return Rolling(memory, state.years, state.lead + 1), values

    def bounded(self, memory: list[Array]) -> list[Array]:
        """Return the memory one step on, coordinates within `LIMIT`, parameters as they were."""
        before = memory[0]
        with np.errstate(over="ignore", invalid="ignore"):
            memory = self.advance(memory)
            newest = np.clip(np.nan_to_num(memory[0], nan=LIMIT), -LIMIT, LIMIT)
        if self.frame.held:
            newest[..., -self.frame.held :] = before[..., -self.frame.held :]
        return [newest, *memory[1:]]

    def predict(self, windows: Windows) -> Array:
        """Return (window, lead, cell)."""
        state, out = self.start(windows), []
        for _ in range(windows.leads):
            state, values = self.step(state)
            out.append(values)
        return np.stack(out, axis=1)

    def subspace(self) -> Subspace | None:
        """Return the modes, where the model works in them."""
        return self.frame if isinstance(self.frame, Modes) else None

    def coordinates(self, encoded: Windows) -> Array:
        """Return (window, lead, coordinate)."""
        return self.rollout(encoded, encoded.leads)

    def rollout(self, encoded: Windows, steps: int) -> Array:
        """Return (window, step, coordinate) from windows of coordinates, any number of steps."""
        memory, out = self.memory_of([encoded.lagged(k) for k in range(self.lags)]), []
        for _ in range(steps):
            memory = self.bounded(memory)
            out.append(memory[0])
        return np.stack(out, axis=1)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the frame's arrays and the coefficients."""
        return {**prefixed("frame", self.frame.arrays()), **prefixed("map", self.fitted())}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> Recursive:
        """Set what `arrays` returned."""
        self.frame.restore(within("frame", arrays))
        self.set_fitted(within("map", arrays))
        return self


def lagged_rows(stretches: Sequence[Array], lags: int, reach: int) -> tuple[Array, Array]:
    """Return ((row, lag, coordinate) newest first, (row, coordinate) steps that follow)."""
    now, after = [], []
    for z in stretches:
        rows = np.arange(reach, len(z) - 1)
        now.append(np.stack([z[rows - k] for k in range(lags)], axis=1))
        after.append(z[rows + 1])
    return np.concatenate(now), np.concatenate(after)
