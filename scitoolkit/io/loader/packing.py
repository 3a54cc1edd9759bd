"""Stored values to physical ones: byte order, scale and offset, missing values as NaN.

Source: CF Conventions 1.11, section 8.1 "Packed Data" and 2.5.1 "Missing data".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Packing:
    """How one variable's values are stored.

    Args:
        dtype: of the stored values.
        scale: factor, None when the values are not packed.
        offset: summand.
        missing: stored values that stand for "no value".

    Example:
        >>> packing = Packing.of(np.dtype(">i2"), {"scale_factor": 0.5, "_FillValue": -1})
        >>> packing.unpack(np.array([4, -1], ">i2")).tolist()
        [2.0, nan]
    """

    dtype: np.dtype
    scale: float | None = None
    offset: float = 0.0
    missing: tuple[float, ...] = ()

    @classmethod
    def of(cls, dtype: np.dtype, attrs: Mapping[str, Any]) -> Packing:
        """Return the packing that a variable's attributes describe."""
        packed = "scale_factor" in attrs or "add_offset" in attrs
        names = ("_FillValue", "missing_value")
        missing = tuple(float(attrs[n]) for n in names if _is_number(attrs.get(n)))
        return cls(
            dtype,
            float(attrs.get("scale_factor", 1.0)) if packed else None,
            float(attrs.get("add_offset", 0.0)),
            tuple(m for m in dict.fromkeys(missing) if not np.isnan(m)),
        )

    @property
    def result(self) -> np.dtype:
        """Dtype of the physical values."""
        if self.scale is not None or (self.missing and self.dtype.kind in "biu"):
            return np.dtype(np.float32 if self.dtype.itemsize <= 2 else np.float64)
        return self.dtype.newbyteorder("=")

    def unpack(self, stored: np.ndarray) -> np.ndarray:
        """Return the physical values; the array itself where nothing has to be done."""
        values = stored.astype(self.result, copy=False)
        if self.scale is None and not self.missing:
            return values
        if self.scale is not None:
            values = values * self.result.type(self.scale) + self.result.type(self.offset)
        elif values is stored:
            values = stored.copy()
        for missing in self.missing:
            values[stored == stored.dtype.type(missing)] = np.nan
        return values


def _is_number(value: Any) -> bool:
    return value is not None and not isinstance(value, str)
