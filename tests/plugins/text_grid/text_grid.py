"""A file format: a line that describes one variable as JSON, its values as text, `#end`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import xarray as xr

from scitoolkit.core.errors import DataError
from scitoolkit.io.formats import Format

SIGNATURE, END = "#grid ", "#end"


class TextGrid(Format):
    """One variable on a grid, as text."""

    name: ClassVar[str] = "text_grid"

    @classmethod
    def guess(cls, path: Path) -> float:
        """Return 1 where the first characters are the signature."""
        if not path.is_file():
            return 0.0
        with path.open("rb") as file:
            return float(file.read(len(SIGNATURE)) == SIGNATURE.encode())

    @classmethod
    def open_dataset(cls, path: Path, *, chunks: Any = None, decode: bool = True) -> xr.Dataset:
        """Read the values; text cannot be read lazily."""
        with path.open(encoding="utf-8") as file:
            head = json.loads(file.readline().removeprefix(SIGNATURE))
            *words, end = file.read().split() or [""]
        if end != END or len(words) != np.prod(head["shape"]):
            raise DataError(f"{len(words)} values, not {head['shape']}", where=str(path))
        values = np.array(words, head["dtype"])
        array = (head["dims"], values.reshape(head["shape"]), head["attrs"])
        dataset = xr.Dataset({head["name"]: array})
        return dataset if chunks is None else dataset.chunk(chunks)


def write_text_grid(array: xr.DataArray, path: Path) -> None:
    """Write a variable so that every bit of its values comes back."""
    head = {"name": str(array.name), "dims": array.dims, "shape": array.shape}
    head |= {"dtype": array.dtype.str, "attrs": array.attrs}
    rows = array.values.reshape(array.shape[0], -1)
    lines = [" ".join(repr(float(v)) for v in row) for row in rows]
    path.write_text("\n".join([SIGNATURE + json.dumps(head), *lines, END]) + "\n", "utf-8")
