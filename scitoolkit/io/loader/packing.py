"""Conversion of stored to physical values: byte order, sign, scale, offset, missing values.

Source: CF Conventions 1.11, section 8.1 "Packed Data" and 2.5.1 "Missing data"; NetCDF Users Guide,
"Attribute Conventions", `_Unsigned`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from scitoolkit.io.missing_attributes import (
    FILLS,
    LIMITS,
    missing_numbers,
    number_of,
    stored_limits,
)

ATTRIBUTES = ("units", "scale_factor", "add_offset", *FILLS, *LIMITS, "_Unsigned")
"""Attributes of a variable that readers retain; all but the first define its packing."""
_SIGNS = {("true", "i"): "u", ("false", "u"): "i"}
"""(`_Unsigned`, stored kind) -> kind of the integers."""


@dataclass(frozen=True)
class Packing:
    """Packing of a variable's values.

    Args:
        dtype: of the stored values.
        scale: factor; None if the values are not packed.
        offset: added after scaling.
        missing: stored values that mark missing data.
        integers: dtype to reinterpret stored integers with, according to `_Unsigned`.
        limits: the smallest and the largest stored value that is valid; others are missing.

    Example:
        >>> packing = Packing.of(np.dtype(">i2"), {"scale_factor": 0.5, "_FillValue": -1})
        >>> packing.unpack(np.array([4, -1], ">i2")).tolist()
        [2.0, nan]
    """

    dtype: np.dtype
    scale: float | None = None
    offset: float = 0.0
    missing: tuple[float, ...] = ()
    integers: np.dtype | None = None
    limits: tuple[float, float] = (-math.inf, math.inf)

    @classmethod
    def of(cls, dtype: np.dtype, attrs: Mapping[str, Any]) -> Packing:
        """Return the packing defined by a variable's attributes."""
        packed = "scale_factor" in attrs or "add_offset" in attrs
        kind = _SIGNS.get((str(attrs.get("_Unsigned", "")).lower(), dtype.kind))
        integers = np.dtype(f"{dtype.byteorder}{kind}{dtype.itemsize}") if kind else None
        scale = number_of(attrs, "scale_factor", 1.0) if packed else None
        offset = number_of(attrs, "add_offset", 0.0)
        limits = stored_limits(attrs, integers or dtype, scale, offset)
        return cls(dtype, scale, offset, missing_numbers(attrs, dtype), integers, limits)

    def shifted(self, by: float) -> Packing:
        """Return the packing of values from which a number is subtracted in float64."""
        return replace(self, scale=self.scale or 1.0, offset=self.offset - by) if by else self

    @property
    def hides(self) -> bool:
        """Whether some values would be missing."""
        return bool(self.missing) or self.limits != (-math.inf, math.inf)

    @property
    def result(self) -> np.dtype:
        """Dtype of the physical values."""
        if self.dtype.kind == "c":
            return self.dtype.newbyteorder("=")
        if self.scale is not None or (self.hides and self.dtype.kind in "biu"):
            return np.dtype(np.float32 if self._fits_float32 else np.float64)
        return (self.integers or self.dtype).newbyteorder("=")

    @property
    def _fits_float32(self) -> bool:
        """Whether float32 tells neighbouring packed values apart, also around a large offset."""
        if self.dtype.itemsize > 2:
            return False
        return self.scale is None or bool(
            np.spacing(np.float32(self.offset)) <= abs(self.scale) / 8
        )

    def unpack(self, stored: np.ndarray, *, exact: bool = False) -> np.ndarray:
        """Return the physical values with NaN for missing ones; `stored` itself if not packed.

        Args:
            stored: values as stored.
            exact: scale in float64, also where float32 tells neighbouring values apart.
        """
        result = np.dtype(np.float64) if exact and self.scale is not None else self.result
        if self.integers is not None:
            stored = np.ascontiguousarray(stored).view(self.integers)
        values = stored.astype(result, copy=False)
        if self.scale is None and not self.hides:
            return values
        if self.scale is not None:
            values = values * result.type(self.scale) + result.type(self.offset)
        elif values is stored:
            values = stored.copy()
        for missing in self.missing:
            if self._can_occur(missing):
                values[stored == self._as_stored(missing)] = np.nan
        low, high = self.limits
        if low > -math.inf:
            values[stored < low] = np.nan
        if high < math.inf:
            values[stored > high] = np.nan
        return values

    def _can_occur(self, missing: float) -> bool:
        """Return whether the stored type has a value: 1e20 is none of 16-bit integers."""
        if self.dtype.kind not in "iu" and self.integers is None:
            return True
        # The attribute may be signed where the stored type is not, and the reverse.
        bits = 8 * self.dtype.itemsize
        return float(missing).is_integer() and -(2 ** (bits - 1)) <= missing < 2**bits

    def _as_stored(self, missing: float) -> np.generic:
        """Return a missing value in the dtype of the stored values."""
        if isinstance(missing, int):
            return np.asarray(missing).astype(self.integers or self.dtype).reshape(1)[0]
        if self.integers is None:
            return self.dtype.type(missing)
        # The attribute may be signed or unsigned.
        return np.int64(missing).astype(self.integers)
