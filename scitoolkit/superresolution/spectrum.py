"""Spectral correction of predictions, measured on a held-out simulation.

A network trained on squared errors loses power at uncertain scales, and interpolation between
latent nodes adds power at the smallest ones. One factor for each field and wave along a periodic
dim, measured on a whole simulation, corrects the amplitudes without changing phases.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.core.errors import CheckpointError, ConfigError
from scitoolkit.core.files import write_atomic

Array = np.ndarray
FILE = "spectrum.json"
_LEAST = 1e-30


@dataclass(frozen=True)
class WaveGains:
    """Amplitude factors of the waves along a periodic dim.

    Attributes:
        dim: name of the dim.
        length: period of the simulation on which they were measured.
        gains: (field, wave), wave 0 first.
    """

    dim: str
    length: float
    gains: list[list[float]]

    @classmethod
    def measure(
        cls, truth: Array, predicted: Array, axis: int, dim: str, length: float
    ) -> WaveGains:
        """Return the factors that give a prediction the power spectrum of the truth.

        Args:
            truth: (field, *dims).
            predicted: the prediction, likewise.
            axis: index of the periodic dim in these arrays.
            dim: name of the periodic dim.
            length: its period.

        Example:
            >>> x = 2 * np.pi * np.arange(16) / 16
            >>> truth = (np.sin(x) + 0.5 * np.sin(3 * x))[None]
            >>> found = WaveGains.measure(truth, (np.sin(x) + np.sin(3 * x))[None], 1, "x", 1.0)
            >>> [round(g, 3) for g in found.gains[0][1:4:2]]
            [1.0, 0.5]
        """
        over = tuple(i for i in range(1, truth.ndim) if i != axis)
        power = [np.mean(np.abs(np.fft.rfft(v, axis=axis)) ** 2, over) for v in (truth, predicted)]
        # Gain = sqrt(P_truth / P_predicted); waves that the prediction has only as rounding keep
        # gain 1.
        floor = _LEAST + 1e-24 * power[1].max(1, keepdims=True)
        gains = np.where(power[1] > floor, np.sqrt(power[0] / np.maximum(power[1], floor)), 1.0)
        gains[:, 0] = 1.0
        return cls(dim, length, gains.tolist())

    def apply(self, values: Array, axis: int, length: float) -> Array:
        """Scale the waves of fields (field, *dims); waves beyond the measured ones are removed.

        Args:
            values: (field, *dims) on even nodes that fill the period.
            axis: index of the periodic dim.
            length: its period.
        """
        count = values.shape[axis]
        gains = np.asarray(self.gains)
        # The same physical wave in a box of another length.
        wave = np.arange(count // 2 + 1) * self.length / length
        interpolated = np.stack(
            [np.interp(wave, np.arange(gains.shape[1]), g, right=0.0) for g in gains]
        )
        shape = [1] * values.ndim
        shape[0], shape[axis] = interpolated.shape
        waves = np.fft.rfft(values, axis=axis) * interpolated.reshape(shape)
        return np.fft.irfft(waves, count, axis=axis).astype(values.dtype)

    def along(self, dims: Sequence[str], nodes: Sequence[Array], periods: Sequence[Any]) -> int:
        """Return the index of the dim in (field, *dims).

        Raises:
            ConfigError: the nodes do not fill the period evenly.
        """
        axis = list(dims).index(self.dim)
        at, period = np.asarray(nodes[axis]), periods[axis]
        step = period / len(at) if period else 0.0
        if not step or np.abs(np.diff(at) - step).max(initial=0.0) > 1e-4 * step:
            raise ConfigError(
                f"nodes along {self.dim} that do not fill the period evenly",
                where="spectrum",
                fix="use nodes that do, or a model without spectrum",
            )
        return axis + 1

    def save(self, folder: Path) -> None:
        """Write the factors next to the weights."""
        write_atomic(Path(folder) / FILE, json.dumps(asdict(self)) + "\n")

    @classmethod
    def load(cls, folder: Path) -> WaveGains | None:
        """Read factors written by `save`; None if there is no file.

        Raises:
            CheckpointError: a damaged file.
        """
        path = Path(folder) / FILE
        if not path.is_file():
            return None
        try:
            stored: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            return cls(**stored)
        except (OSError, ValueError, TypeError) as error:
            raise CheckpointError(f"cannot be read ({error})", where=str(path)) from None
