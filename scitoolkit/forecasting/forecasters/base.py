"""The plug-in kind `forecaster`: configuration, setting and life of a forecasting model.

A member is a `ForecasterConfig`: its fields are settings (None: chosen by validation among
`candidates`), its class attributes are capabilities, `build` returns the model. The life of a
model:

    fit(segments, memo)       learn from unbroken stretches of a record; what does not depend on
                              the penalty (`Recursive.prepare`) is kept in `memo` for others
    start(windows)            the state at the last input of every window
    step(state)               one step on: (state, values)
    predict(windows)          all leads: the steps one after another
    arrays(), restore(arrays) plain arrays from which the fitted model is made again
    cost()                    number of stored values
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol, TypeVar

import numpy as np

from scitoolkit.core.config import Config
from scitoolkit.core.plugins import Kind, NeedsPackages
from scitoolkit.forecasting.windows import Array, Series, Windows

Memo = MutableMapping[Any, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Setting:
    """What a forecaster is built for: window, field and calendar.

    Attributes:
        inputs: steps that a forecast sees.
        leads: steps that it forecasts.
        weights: (cell,) area weights of mean 1.
        rank: modes of those forecasters that work in a subspace.
        harmonics: annual harmonics of climatologies.
        shape: of the grid; None where cells are masked, so that cells have no known neighbours.
        rows: time steps that are learned from.
        seed: of random parts.
        parameters: number of cells of each parameter of simulations; these cells come last.
    """

    inputs: int
    leads: int
    weights: Array = field(repr=False)
    rank: int = 5
    harmonics: int = 0
    shape: tuple[int, ...] | None = None
    rows: int = 0
    seed: int = 0
    parameters: tuple[int, ...] = ()

    @property
    def modes(self) -> int:
        """Return the number of modes: the rank, at most the cells, and one a parameter."""
        cells = len(self.weights) - sum(self.parameters)
        return min(self.rank, cells) + len(self.parameters)


class Forecaster(ABC):
    """A forecasting model: learns from stretches of a record, forecasts windows."""

    recursive: ClassVar[bool] = False
    """Whether `step` continues beyond the leads by the model's own output, so it may diverge."""

    @abstractmethod
    def fit(self, segments: Sequence[Series], memo: Memo | None = None) -> Forecaster:
        """Learn from unbroken stretches of a record; return self.

        Args:
            segments: stretches of (time, cell).
            memo: results that do not depend on the penalty, kept between candidates that are
                fitted to the same segments.
        """

    @abstractmethod
    def predict(self, windows: Windows) -> Array:
        """Return (window, lead, cell)."""

    def start(self, windows: Windows) -> Any:
        """Return the state at the last input of every window."""
        return self.predict(windows), 0

    def step(self, state: Any) -> tuple[Any, Array]:
        """Return the state one step on, and its values (window, cell)."""
        forecast, lead = state
        return (forecast, lead + 1), forecast[:, lead]

    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """Return what was fitted, as plain arrays."""

    @abstractmethod
    def restore(self, arrays: Mapping[str, np.ndarray]) -> Forecaster:
        """Set what `arrays` returned; return self."""

    def cost(self) -> int:
        """Return the number of stored values."""
        return sum(a.size for a in self.arrays().values())

    def subspace(self) -> Subspace | None:
        """Return the orthonormal coordinates outside which nothing but a climatology is forecast.

        Errors of such a forecaster are measured in them, which costs a fraction of the field's.
        """
        return None

    def coordinates(self, encoded: Windows) -> Array:
        """Return (window, lead, coordinate) of windows of coordinates; see `subspace`."""
        raise NotImplementedError


class Subspace(Protocol):
    """Orthonormal coordinates of part of a field."""

    key: tuple[Any, ...]

    def encode(self, values: Array, years: Array) -> Array:
        """Return (..., coordinate) of (..., cell)."""

    def split(self, truth: Array, years: Array) -> tuple[Array, Array]:
        """Return coordinates of (window, lead, cell), and (lead,) mean squares outside them."""

    def square(self, difference: Array) -> Array:
        """Return (lead,) area-weighted mean squares of differences of coordinates."""


class ForecasterConfig(NeedsPackages, Config):
    """Base of a forecaster's configuration.

    Attributes:
        title: its name in tables.
        closed_form: whether `fit` solves linear systems only; `auto` compares these.
        compared: whether `auto` compares it at all.
    """

    title: ClassVar[str] = ""
    closed_form: ClassVar[bool] = True
    compared: ClassVar[bool] = True

    name: str

    @abstractmethod
    def build(self, setting: Setting) -> Forecaster:
        """Return an unfitted model."""

    def refuses(self, setting: Setting) -> str:
        """Return why the model cannot be used in this setting, "" if it can."""
        return ""

    def work(self, setting: Setting) -> float:
        """Return the multiplications of one step of one forecast; `auto` leaves out costly ones."""
        return 0.0

    def candidates(self, setting: Setting) -> list[ForecasterConfig]:
        """Return the settings to choose from by validation, simplest first."""
        return [self]

    def tune(
        self, setting: Setting, error: Callable[[ForecasterConfig], float]
    ) -> ForecasterConfig:
        """Return the candidate of the least validation error."""
        found = self.candidates(setting)
        return found[0] if len(found) == 1 else min(found, key=error)

    def label(self) -> str:
        """Return title and chosen settings, for tables."""
        given = self.model_dump(exclude={"name"}, exclude_none=True)
        text = ", ".join(f"{k} {v:g}" for k, v in given.items() if isinstance(v, (int, float)))
        return f"{self.title} ({text})" if text else self.title

    def fill(self, **options: Sequence[Any]) -> list[ForecasterConfig]:
        """Return copies with every combination of `options` for the settings that are None."""
        copies: list[ForecasterConfig] = [self]
        for key, values in options.items():
            if getattr(self, key) is None:
                copies = [c.model_copy(update={key: value}) for c in copies for value in values]
        return copies


forecasters: Kind[type[ForecasterConfig]] = Kind(
    "forecaster",
    "forecasts a gridded series from its last steps",
    contract="scitoolkit.testing:ForecasterContract",
)


def once(memo: Memo | None, key: Any, make: Callable[[], T]) -> T:
    """Return `memo[key]`, made on first use; without a memo it is made each time."""
    if memo is None:
        return make()
    if key not in memo:
        memo[key] = make()
    return memo[key]


def prefixed(name: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays of a part, under its name."""
    return {f"{name}.{key}": value for key, value in arrays.items()}


def within(name: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays of a part: the inverse of `prefixed`."""
    return {k.removeprefix(f"{name}."): v for k, v in arrays.items() if k.startswith(f"{name}.")}
