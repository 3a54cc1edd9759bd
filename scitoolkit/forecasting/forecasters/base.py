"""Plug-in kind `forecaster`: configuration, setting and interface of a forecasting model.

A member is a `ForecasterConfig`: its fields are settings (None is selected by validation among
`candidates`), its class attributes are capabilities, and `build` returns the model. Methods of a
model:

    fit(segments, memo)       fit to stretches without gaps; results that do not depend on the
                              penalty (`Recursive.prepare`) are cached in `memo`
    start(windows)            state at the last input of every window
    step(state)               advance by one step: (state, values)
    predict(windows)          all leads, by default step by step
    arrays(), restore(arrays) serialise and restore the fitted state
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
from scitoolkit.forecasting.windows import Array, TimeSeries, Windows

MOST_SERIES = 4
"""Cells up to which `auto` compares forecasters of wandering levels and trends.

The anomalies of a field's modes are stationary about its climatology, or it has drifting units.
"""
Memo = MutableMapping[Any, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Setting:
    """Setting of a forecaster: window, field and calendar.

    Attributes:
        inputs: number of input steps.
        leads: number of forecast steps.
        weights: (cell,) area weights with mean 1.
        rank: number of modes of forecasters that work in a subspace.
        harmonics: number of annual harmonics of climatologies.
        shape: of the grid; None with masked cells, whose neighbours are unknown.
        rows: number of training steps.
        seed: of random components.
        parameters: number of cells of each simulation parameter; these are the last cells.
        season: steps of the main season; 0 without one or if they are no whole number.
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
    season: int = 0

    @property
    def modes(self) -> int:
        """Number of modes: the rank (at most the number of cells) plus one per parameter."""
        cells = len(self.weights) - sum(self.parameters)
        return min(self.rank, cells) + len(self.parameters)

    @property
    def few_series(self) -> bool:
        """Whether the cells are at most `MOST_SERIES` series rather than a field."""
        return len(self.weights) <= MOST_SERIES


class Forecaster(ABC):
    """Forecasting model: fitted to stretches of a record, applied to windows."""

    recursive: ClassVar[bool] = False
    """Whether `step` feeds back the model's output, so that long rollouts may diverge."""

    @abstractmethod
    def fit(self, segments: Sequence[TimeSeries], memo: Memo | None = None) -> Forecaster:
        """Fit to stretches of a record without gaps; return self.

        Args:
            segments: stretches with values (time, cell).
            memo: cache of results that do not depend on the penalty, shared by candidates fitted
                to the same segments.
        """

    @abstractmethod
    def predict(self, windows: Windows) -> Array:
        """Return the forecast, (window, lead, cell)."""

    def start(self, windows: Windows) -> Any:
        """Return the state at the last input of every window."""
        return self.predict(windows), 0

    def step(self, state: Any) -> tuple[Any, Array]:
        """Return the state after one step, and its values (window, cell)."""
        forecast, lead = state
        return (forecast, lead + 1), forecast[:, lead]

    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """Return the fitted state as plain arrays."""

    @abstractmethod
    def restore(self, arrays: Mapping[str, np.ndarray]) -> Forecaster:
        """Restore the fitted state from `arrays`; return self."""

    def cost(self) -> int:
        """Return the number of stored values."""
        return sum(a.size for a in self.arrays().values())

    def subspace(self) -> Subspace | None:
        """Return the subspace outside which the forecast is the climatology; None without one.

        Errors of such a forecaster are computed in the subspace, which is much cheaper.
        """
        return None

    def coordinates(self, encoded: Windows) -> Array:
        """Return the forecast (window, lead, coordinate) for encoded windows; see `subspace`."""
        raise NotImplementedError


class Subspace(Protocol):
    """Orthonormal coordinates of a subspace of the field."""

    key: tuple[Any, ...]

    def encode(self, values: Array, years: Array) -> Array:
        """Return the coordinates (..., coordinate) of values (..., cell)."""

    def split(self, truth: Array, years: Array) -> tuple[Array, Array]:
        """Return coordinates of (window, lead, cell), and mean squares (lead,) outside them."""

    def square(self, difference: Array) -> Array:
        """Return area-weighted mean squares (lead,) of differences of coordinates."""


class ForecasterConfig(NeedsPackages, Config):
    """Base class of forecaster configurations.

    Attributes:
        title: name in tables; that of settings is `titled`.
        closed_form: whether `fit` only solves linear systems.
        compared: whether `auto` compares this closed form.
        in_title: settings that the title tells.
    """

    title: ClassVar[str] = ""
    in_title: ClassVar[tuple[str, ...]] = ()
    closed_form: ClassVar[bool] = True
    compared: ClassVar[bool] = True

    name: str

    @abstractmethod
    def build(self, setting: Setting) -> Forecaster:
        """Return the unfitted model."""

    @classmethod
    def variants(cls) -> list[ForecasterConfig]:
        """Return the configurations that `auto` compares as separate rows."""
        return [cls.model_validate({"name": cls.model_fields["name"].default})]

    def compares(self, setting: Setting) -> bool:
        """Return whether `auto` compares these settings here."""
        return True

    def titled(self) -> str:
        """Return the name in tables of these settings."""
        return self.title

    def refuses(self, setting: Setting) -> str:
        """Return the reason why the model cannot be used in this setting, "" if it can."""
        return ""

    def work(self, setting: Setting) -> float:
        """Return the number of multiplications per forecast step; `auto` skips costly models."""
        return 0.0

    def candidates(self, setting: Setting) -> list[ForecasterConfig]:
        """Return the candidate settings for validation, simplest first."""
        return [self]

    def tune(
        self, setting: Setting, error: Callable[[ForecasterConfig], float]
    ) -> ForecasterConfig:
        """Return the candidate with the least validation error."""
        candidates = self.candidates(setting)
        return candidates[0] if len(candidates) == 1 else min(candidates, key=error)

    def label(self) -> str:
        """Return the title and the numeric settings, for tables."""
        settings = self.model_dump(exclude={"name"}, exclude_none=True)
        numbers = {k: v for k, v in settings.items() if isinstance(v, (int, float))}
        text = ", ".join(
            f"{k} {v:g}" for k, v in numbers.items() if k not in self.in_title and v is not False
        )
        return f"{self.titled()} ({text})" if text else self.titled()

    def fill(self, **options: Sequence[Any]) -> list[ForecasterConfig]:
        """Return copies with every combination of `options` for the settings that are None."""
        copies: list[ForecasterConfig] = [self]
        for key, values in options.items():
            if getattr(self, key) is None:
                copies = [c.model_copy(update={key: value}) for c in copies for value in values]
        return copies


_MEMORY = {"name": "damped_anomaly", "memory": None, "folds": None, "shrinkage": None}
RENAMED: dict[str, dict[str, Any]] = {
    "anomaly_persistence": {"name": "persistence", "anomalies": True},
    "autoregression_average": {"name": "autoregression", "average": True},
    "climatology_trend": {"name": "climatology", "trend": True},
    "cubic_map": {"name": "polynomial_map", "degree": 3},
    "damped_anomaly_average": {"name": "damped_anomaly", "average": True},
    "damped_anomaly_memory": _MEMORY,
    "damped_pod_ridge": {"name": "pod_ridge", "base": _MEMORY},
    "hankel_dmd": {"name": "dmd", "delays": True},
    "identified_stencil_ode": {"name": "identified_ode", "neighbours": True},
    "linear": {"name": "polynomial_map", "degree": 1},
    "quadratic_map": {"name": "polynomial_map", "degree": 2},
}
"""Former names of forecasters and the settings that they stand for."""

forecasters: Kind[type[ForecasterConfig]] = Kind(
    "forecaster",
    "forecasts a gridded series from its last steps",
    contract="scitoolkit.testing:ForecasterContract",
    renamed=RENAMED,
)


def stored_config(settings: Mapping[str, Any]) -> ForecasterConfig:
    """Return the configuration of stored settings, which may have a former name."""
    present = forecasters.current(settings)
    return forecasters.get(present["name"]).model_validate(present)


def once(memo: Memo | None, key: Any, make: Callable[[], T]) -> T:
    """Return `memo[key]`, computed by `make` on first use; without a memo, always computed."""
    if memo is None:
        return make()
    if key not in memo:
        memo[key] = make()
    return memo[key]


def prefixed(name: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return arrays with keys prefixed by the name of a component."""
    return {f"{name}.{key}": value for key, value in arrays.items()}


def within(name: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays of a component, without prefix; the inverse of `prefixed`."""
    return {k.removeprefix(f"{name}."): v for k, v in arrays.items() if k.startswith(f"{name}.")}
