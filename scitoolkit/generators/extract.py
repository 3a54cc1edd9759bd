"""Conversion of a sample to training arrays, and to one block of memory for a pipe."""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from scitoolkit.core.errors import DataError, NumericalError

if TYPE_CHECKING:
    from scitoolkit.generators.base import Generator, Sample


@dataclass(frozen=True)
class Extract:
    """Arrays that are extracted from each sample.

    Attributes:
        sample_dim: dim that counts frames.
        fields: {variable: its other dims, in the order of the arrays}.
        parameters: {name: `linear`, or `log` for the common logarithm}; the same in all frames.
        shapes: {variable or parameter: shape of its array}, frames first.
    """

    sample_dim: str
    fields: Mapping[str, tuple[str, ...]]
    parameters: Mapping[str, str]
    shapes: Mapping[str, tuple[int, ...]]

    @property
    def size(self) -> int:
        """Total number of values of the arrays."""
        return sum(math.prod(shape) for shape in self.shapes.values())

    def arrays(self, generator: Generator, sample: Sample) -> dict[str, np.ndarray]:
        """Return the arrays of a sample, float32.

        Args:
            generator: with the sample's parameters.
            sample: made by the generator.

        Raises:
            NumericalError: a value is not finite.
            DataError: a variable is missing or has another shape than in the first sample.
        """
        frames = sample.frames
        arrays = {}
        for name, dims in self.fields.items():
            try:
                values = frames[name].transpose(self.sample_dim, *dims)  # type: ignore[call-overload]
            except (KeyError, ValueError) as error:
                raise DataError(
                    f"no variable of dims {self.sample_dim}, {', '.join(dims)} ({error})",
                    where=f"generator {generator.name}: {name}",
                ) from None
            arrays[name] = values.to_numpy().astype(np.float32)
        for name, scale in self.parameters.items():
            stated = frames.attrs.get(name)  # type: ignore[union-attr]
            value = generator.value_of(name) if stated is None else float(stated)
            value = math.log10(value) if scale == "log" else value
            arrays[name] = np.full(self.shapes[name], value, np.float32)
        for name, shape in self.shapes.items():
            if arrays[name].shape != shape:
                raise DataError(
                    f"shape {arrays[name].shape}",
                    where=f"generator {generator.name}: {name}",
                    allowed=f"{shape}, that of the first sample",
                )
            if not np.isfinite(arrays[name]).all():
                frame = int(np.argmin(np.isfinite(arrays[name]).reshape(shape[0], -1).all(1)))
                raise NumericalError(
                    "NaN or Inf", where=f"generator {generator.name}: {name}, frame {frame}"
                )
        return arrays

    def pack(self, arrays: Mapping[str, np.ndarray], block: np.ndarray) -> int:
        """Write arrays into a block of `size` float32; return its checksum."""
        for part, name in zip(self._parts(block), self.shapes, strict=True):
            part[...] = arrays[name]
        return zlib.crc32(block.data)

    def unpack(self, block: np.ndarray, out: Mapping[str, np.ndarray]) -> None:
        """Write a block into arrays."""
        for part, name in zip(self._parts(block), self.shapes, strict=True):
            out[name][...] = part

    def _parts(self, block: np.ndarray) -> list[np.ndarray]:
        ends = np.cumsum([math.prod(shape) for shape in self.shapes.values()])
        return [
            part.reshape(shape)
            for part, shape in zip(np.split(block, ends[:-1]), self.shapes.values(), strict=True)
        ]
