"""Thirty series of all calendars with known laws, made of seasons, trends, levels and noise.

Only numpy and pandas are imported, so that the environment of the peers can make the same series.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd

TEST = 320
"""Steps of the test part of every series."""


@dataclass(frozen=True)
class Made:
    """A series as a table and as numbers.

    Attributes:
        name: calendar and law.
        times: (T,) entries of the column of times, as text or numbers.
        values: (T,) float64, NaN where missing.
        seasons: periods in steps that the law has, the main one first; () for none.
        inputs, leads: steps of the windows.
        settings: of our job beside its defaults.
    """

    name: str
    times: np.ndarray
    values: np.ndarray
    seasons: tuple[float, ...]
    inputs: int
    leads: int
    settings: dict


def autoregression(rng: np.random.Generator, count: int, *phi: float) -> np.ndarray:
    """Return a Gaussian autoregression with unit innovations after a spin-up."""
    noise, out = rng.standard_normal(count + 200), np.zeros(count + 200)
    for i in range(len(phi), count + 200):
        out[i] = sum(p * out[i - 1 - k] for k, p in enumerate(phi)) + noise[i]
    return out[200:]


def season(rng: np.random.Generator, steps: np.ndarray, period: float, harmonics: int = 2):
    """Return a fixed season of random shape with amplitude about 1."""
    out = np.zeros(len(steps))
    for k in range(1, harmonics + 1):
        a, b = rng.standard_normal(2) / k
        out += a * np.cos(2 * np.pi * k * steps / period) + b * np.sin(
            2 * np.pi * k * steps / period
        )
    return out / out.std()


def changing_season(rng: np.random.Generator, count: int, period: int, rate: float):
    """Return a season whose shape wanders by `rate` a period, as exponential smoothing assumes."""
    shape = season(rng, np.arange(period), period)
    out = np.empty(count)
    for i in range(count):
        shape[i % period] += rate * rng.standard_normal()
        out[i] = shape[i % period] - shape.mean()
    return out


def noise_of(kind: str, rng: np.random.Generator, count: int) -> np.ndarray:
    """Return the part of a series that is no season.

    Kinds: `ar` (first order), `cyclic` (second order, oscillating), `trend` (a line and `ar`),
    `level` (a random walk under noise), `walk`, `average` (moving average of first order), `drift`
    (a random walk with a drift).
    """
    shocks = rng.standard_normal(count)
    if kind == "ar":
        return autoregression(rng, count, 0.7)
    if kind == "cyclic":
        return autoregression(rng, count, 1.3, -0.6)
    if kind == "trend":
        return autoregression(rng, count, 0.6) + 8.0 * np.arange(count) / count
    if kind == "level":
        return np.cumsum(0.35 * shocks) + rng.standard_normal(count)
    if kind == "walk":
        return np.cumsum(shocks)
    if kind == "drift":
        return np.cumsum(shocks + 0.15)
    return shocks + 0.6 * np.concatenate([[0.0], shocks[:-1]])


def months(count: int) -> pd.DatetimeIndex:
    return pd.date_range("1930-01-01", periods=count, freq="MS")


def dekads(count: int) -> list[str]:
    return [f"{1985 + i // 36}-{i % 36 // 3 + 1:02}-{i % 3 * 10 + 1:02}" for i in range(count)]


def pentads(count: int) -> list[str]:
    return [f"{1995 + i // 72}-{i % 72 // 6 + 1:02}-{i % 6 * 5 + 1:02}" for i in range(count)]


def texts(index: pd.DatetimeIndex, style: str = "%Y-%m-%d %H:%M") -> list[str]:
    return list(index.strftime(style))


# Calendar: times of a count, steps of its season, steps of the series, seasons, inputs, leads.
CALENDARS = {
    "month": (lambda n: texts(months(n), "%Y-%m-%d"), 1000, (12.0,), 24, 6),
    "yyyymm": (lambda n: months(n).year * 100 + months(n).month, 1000, (12.0,), 24, 6),
    "decimal year": (lambda n: np.round(1930 + (np.arange(n) + 0.5) / 12, 3), 1000, (12.0,), 24, 6),
    "month of 360 days": (np.arange, 1000, (12.0,), 24, 6),
    "dekad": (dekads, 1260, (36.0,), 24, 6),
    "pentad": (pentads, 1440, (72.0,), 24, 6),
    "quarter": (
        lambda n: texts(pd.date_range("1700-01-01", periods=n, freq="QS"), "%Y-%m-%d"),
        900,
        (4.0,),
        16,
        4,
    ),
    "day": (lambda n: texts(pd.date_range("2015-01-01", periods=n)), 1300, (7.0,), 28, 7),
    "hour": (
        lambda n: texts(pd.date_range("2023-01-01", periods=n, freq="h")),
        1500,
        (24.0, 168.0),
        48,
        12,
    ),
    "step": (lambda n: np.arange(n), 1000, (), 24, 6),
}
LAWS = {
    "month": ("ar", "trend", "level", "changing", "gaps"),
    "yyyymm": ("cyclic", "drift"),
    "decimal year": ("ar", "trend"),
    "month of 360 days": ("ar", "average"),
    "dekad": ("ar", "cyclic", "gaps"),
    "pentad": ("ar", "trend", "level"),
    "quarter": ("ar", "changing", "walk"),
    "day": ("ar", "level", "gaps"),
    "hour": ("ar", "cyclic", "level", "gaps"),
    "step": ("ar", "walk", "cyclic"),
}


def series() -> list[Made]:
    """Return the series, deterministic."""
    made = []
    for calendar, laws in LAWS.items():
        times_of, count, seasons, inputs, leads = CALENDARS[calendar]
        for law in laws:
            rng = np.random.default_rng([7, len(made)])
            kind = {"changing": "ar", "gaps": "ar"}.get(law, law)
            values = 20.0 + noise_of(kind, rng, count)
            for number, period in enumerate(seasons):
                amplitude = 3.0 / (number + 1)
                if law == "changing":
                    values += amplitude * changing_season(rng, count, int(period), 0.15)
                else:
                    values += amplitude * season(rng, np.arange(count), period)
            if law == "gaps":  # a long gap and missing single steps, all before the test part
                values[200:215] = np.nan
                values[rng.choice(count - TEST - 50, 25, replace=False)] = np.nan
            settings: dict = {"data": {"fill": 2}} if law == "gaps" else {}
            made.append(
                Made(
                    f"{calendar}, {law}",
                    np.asarray(times_of(count)),
                    values,
                    seasons,
                    inputs,
                    leads,
                    settings,
                )
            )
    return made
