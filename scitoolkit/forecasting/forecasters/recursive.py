"""Recursive forecasters, which advance the state by one step and feed back their output."""

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
from scitoolkit.forecasting.windows import Array, TimeSeries, Windows

LIMIT = 1e3
"""Standard deviations at which a diverging forecast is clipped."""


class Rolling(NamedTuple):
    """State of a rollout.

    Attributes:
        memory: arrays read by the map, newest coordinates first.
        years: (window, lead) decimal years of the leads.
        lead: number of steps done.
    """

    memory: list[Array]
    years: Array
    lead: int


class Recursive(Forecaster):
    """One-step map of states in a frame.

    A state is a list of arrays with the newest coordinates (row, coordinate) first.

    Args:
        frame: coordinates.
        lags: number of input steps that define the initial state.
        reach: number of steps before a row used in the fit, at least lags - 1 (the default).
    """

    recursive: ClassVar[bool] = True

    def __init__(self, frame: Frame, lags: int = 1, reach: int | None = None) -> None:
        self.frame: Frame = frame
        self.lags: int = lags
        self.reach: int = lags - 1 if reach is None else reach

    @abstractmethod
    def key(self) -> tuple[Any, ...]:
        """Return the settings that `prepare` depends on; candidates with equal keys share it."""

    @abstractmethod
    def prepare(self, stretches: Sequence[Array]) -> Any:
        """Return quantities independent of the penalty, from stretches (time, coordinate)."""

    @abstractmethod
    def solve(self, prepared: Any) -> None:
        """Solve for the coefficients with the model's penalty."""

    @abstractmethod
    def advance(self, memory: list[Array]) -> list[Array]:
        """Return the memory after one step."""

    @abstractmethod
    def fitted(self) -> dict[str, np.ndarray]:
        """Return the coefficients as arrays by name."""

    @abstractmethod
    def set_fitted(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Restore the coefficients from `fitted`."""

    def fit(self, segments: Sequence[TimeSeries], memo: Memo | None = None) -> Recursive:
        """Fit the frame, then the map to the coordinates of all sufficiently long stretches."""
        self.frame = fitted_frame(self.frame, segments, memo)
        unbroken(segments, self.reach + 2)
        encoded = once(
            memo, ("record", *self.frame.key), lambda: [self.frame.encode(*s) for s in segments]
        )
        prepared = once(
            memo,
            (*self.frame.key, *self.key()),
            lambda: self.prepare([z for z in encoded if len(z) >= self.reach + 2]),
        )
        self.solve(prepared)
        return self

    def memory_of(self, lagged: list[Array]) -> list[Array]:
        """Return the initial memory from the last `lags` coordinates, newest first."""
        return lagged

    def start(self, windows: Windows) -> Rolling:
        """Return the state at the last input of every window."""
        years = windows.input_years()
        lagged = [self.frame.encode(windows.lagged(k), years[:, -1 - k]) for k in range(self.lags)]
        return Rolling(self.memory_of(lagged), windows.output_years(), 0)

    def step(self, state: Rolling) -> tuple[Rolling, Array]:
        """Return the state after one step, and its values (window, cell)."""
        memory = self.bounded(state.memory)
        values = self.frame.decode(memory[0], state.years[:, state.lead])
        return Rolling(memory, state.years, state.lead + 1), values

    def bounded(self, memory: list[Array]) -> list[Array]:
        """Return the memory after one step, clipped to `LIMIT`, with constant parameters."""
        before = memory[0]
        with np.errstate(over="ignore", invalid="ignore"):
            memory = self.advance(memory)
            newest = np.clip(np.nan_to_num(memory[0], nan=LIMIT), -LIMIT, LIMIT)
        if self.frame.held:
            newest[..., -self.frame.held :] = before[..., -self.frame.held :]
        return [newest, *memory[1:]]

    def predict(self, windows: Windows) -> Array:
        """Return the forecast, (window, lead, cell)."""
        state, out = self.start(windows), []
        for _ in range(windows.leads):
            state, values = self.step(state)
            out.append(values)
        return np.stack(out, axis=1)

    def subspace(self) -> Subspace | None:
        """Return the modes if the frame has modes."""
        return self.frame if isinstance(self.frame, Modes) else None

    def coordinates(self, encoded: Windows) -> Array:
        """Return the forecast (window, lead, coordinate) for encoded windows."""
        return self.rollout(encoded, encoded.leads)

    def rollout(self, encoded: Windows, steps: int) -> Array:
        """Return a rollout (window, step, coordinate) of any length from encoded windows."""
        memory, out = self.memory_of([encoded.lagged(k) for k in range(self.lags)]), []
        for _ in range(steps):
            memory = self.bounded(memory)
            out.append(memory[0])
        return np.stack(out, axis=1)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the arrays of the frame and the coefficients."""
        return {**prefixed("frame", self.frame.arrays()), **prefixed("map", self.fitted())}

    def restore(self, arrays: Mapping[str, np.ndarray]) -> Recursive:
        """Restore the fitted state from `arrays`; return self."""
        self.frame.restore(within("frame", arrays))
        self.set_fitted(within("map", arrays))
        return self


def lagged_rows(stretches: Sequence[Array], lags: int, reach: int) -> tuple[Array, Array]:
    """Return lagged states (row, lag, coordinate), newest first, and next states (row, coordinate).

    Args:
        stretches: (time, coordinate) each.
        lags: number of states per row.
        reach: number of steps before the first row of a stretch.
    """
    now, after = [], []
    for z in stretches:
        rows = np.arange(reach, len(z) - 1)
        now.append(np.stack([z[rows - k] for k in range(lags)], axis=1))
        after.append(z[rows + 1])
    return np.concatenate(now), np.concatenate(after)
