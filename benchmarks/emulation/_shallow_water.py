"""Shallow water on a rotating sphere, on a grid of latitude and longitude, for benchmarks."""

from __future__ import annotations

from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import xarray as xr

RADIUS, OMEGA, GRAVITY, DEPTH, VISCOSITY, JET = 6.371e6, 7.292e-5, 9.81, 1000.0, 2e5, 12.0
STEP, HOURS = 600.0, 6


@dataclass
class ShallowWater:
    """Height anomaly h and winds u, v (time, latitude, longitude), every six hours.

    u_t = (f + zeta) v - (g h + (u^2 + v^2) / 2)_x + nu lap u, v_t = -(f + zeta) u - (...)_y + nu
    lap v, h_t = -div((DEPTH + h) (u, v)) + nu lap h, by RK4 and centred differences. Beyond a pole
    are the cells half a turn around it, where winds point the other way. At first a jet in the
    middle latitudes is in balance up to random waves of height.

    Attributes:
        cells: latitudes; there are twice as many longitudes.
        frames: number of frames.
    """

    cells: int = 32
    frames: int = 40
    name: str = field(default="shallow_water", init=False)

    def __post_init__(self) -> None:
        spacing = 180 / self.cells
        self.lat = -90 + spacing * (np.arange(self.cells) + 0.5)
        self.lon = spacing * np.arange(2 * self.cells)
        self.cos = np.cos(np.radians(self.lat))[:, None]
        self.coriolis = 2 * OMEGA * np.sin(np.radians(self.lat))[:, None]
        self.length = RADIUS * np.radians(spacing)

    def generate(self, seed: int) -> SimpleNamespace:
        """Return the frames of a random initial state."""
        state, frames = self._first(np.random.default_rng(seed)), []
        for _ in range(self.frames):
            frames.append(state)
            for _ in range(round(3600 * HOURS / STEP)):
                a = self._tendency(state)
                b = self._tendency(state + STEP / 2 * a)
                c = self._tendency(state + STEP / 2 * b)
                d = self._tendency(state + STEP * c)
                state = state + STEP / 6 * (a + 2 * b + 2 * c + d)
        values = np.stack(frames, 1).astype(np.float32)
        dims = ("time", "latitude", "longitude")
        units = {"h": "m", "u": "m s-1", "v": "m s-1"}
        coords = {
            "time": ("time", HOURS * np.arange(self.frames), {"units": "h"}),
            "latitude": ("latitude", self.lat, {"units": "degrees_north"}),
            "longitude": ("longitude", self.lon, {"units": "degrees_east"}),
        }
        fields = {n: (dims, v, {"units": units[n]}) for n, v in zip("huv", values, strict=True)}
        return SimpleNamespace(frames=xr.Dataset(fields, coords))

    def _first(self, rng: np.random.Generator) -> np.ndarray:
        wind = JET * rng.uniform(0.8, 1.2) * np.sin(2 * np.radians(self.lat)) ** 2
        slope = -wind * (self.coriolis[:, 0] + wind * np.tan(np.radians(self.lat)) / RADIUS)
        height = np.cumsum(slope) * self.length / GRAVITY
        h = np.repeat((height - height.mean())[:, None], len(self.lon), 1)
        for m in range(1, 7):
            wave = np.cos(m * np.radians(self.lon) + rng.uniform(0, 2 * np.pi))
            middle, width = rng.uniform(-60, 60), rng.uniform(12, 25)
            h = h + 8 * rng.normal() * np.exp(-(((self.lat[:, None] - middle) / width) ** 2)) * wave
        return np.stack([h, np.repeat(wind[:, None], len(self.lon), 1), np.zeros_like(h)])

    def _east(self, a: np.ndarray) -> np.ndarray:
        return (np.roll(a, -1, -1) - np.roll(a, 1, -1)) / (2 * self.length * self.cos)

    def _wide(self, a: np.ndarray, sign: float) -> np.ndarray:
        over = sign * np.roll(a, len(self.lon) // 2, -1)
        return np.concatenate([over[..., :1, :], a, over[..., -1:, :]], -2)

    def _north(self, a: np.ndarray, sign: float = 1.0) -> np.ndarray:
        wide = self._wide(a, sign)
        return (wide[..., 2:, :] - wide[..., :-2, :]) / (2 * self.length)

    def _smooth(self, a: np.ndarray, sign: float) -> np.ndarray:
        """Return the Laplacian without its metric term, which the smallest scales do not feel."""
        wide = self._wide(a, sign)
        along = (np.roll(a, -1, -1) - 2 * a + np.roll(a, 1, -1)) / self.cos**2
        return (along + wide[..., 2:, :] - 2 * a + wide[..., :-2, :]) / self.length**2

    def _tendency(self, state: np.ndarray) -> np.ndarray:
        h, u, v = state
        # The cosine is positive on both sides of a pole, and the winds point the other way.
        spin = self.coriolis + self._east(v) - self._north(u * self.cos, -1.0) / self.cos
        head = GRAVITY * h + 0.5 * (u**2 + v**2)
        flux_x, flux_y = (DEPTH + h) * u, (DEPTH + h) * v * self.cos
        out = np.stack(
            [
                -self._east(flux_x) - self._north(flux_y, -1.0) / self.cos,
                spin * v - self._east(head),
                -spin * u - self._north(head),
            ]
        )
        smooth = [self._smooth(f, s) for f, s in zip(state, (1.0, -1.0, -1.0), strict=True)]
        return out + VISCOSITY * np.stack(smooth)
