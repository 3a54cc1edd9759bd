"""Format of refined grids: AMReX plotfiles and Enzo, through yt."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.io.formats.base import Format, file_head

if TYPE_CHECKING:
    import xarray as xr

_logger = get_logger(__name__)


class Adaptive(Format):
    """AMReX plotfiles and Enzo, on their coarsest grid, through yt.

    Each holds one time, which is the scalar `time`. What finer levels add is left out, and said.
    Fields of one name in two groups are named GROUP_NAME.
    """

    name: ClassVar[str] = "adaptive"
    requires: ClassVar[tuple[str, ...]] = ("yt",)
    extra: ClassVar[str] = "adaptive"

    @classmethod
    def guess(cls, path: Path) -> float:
        """Return 1 for the folder of a plotfile, and for the parameters of an Enzo output."""
        if path.is_dir():
            return float(is_plotfile(path))
        return float(path.is_file() and path.with_name(f"{path.name}.hierarchy").is_file())

    @classmethod
    def open_dataset(cls, path: Path, *, chunks: Any = None, decode: bool = True) -> xr.Dataset:
        """Read the fields of the coarsest grid into memory.

        Raises:
            DataError: yt does not read the output.
        """
        import xarray as xr
        import yt

        yt.set_log_level("error")
        try:
            stored = yt.load(str(path))
            finest = int(stored.index.max_level)
            rank = int(stored.dimensionality)
            shape = [int(n) for n in stored.domain_dimensions]
            cells = stored.covering_grid(0, stored.domain_left_edge, shape)
            arrays = {}
            for kind, name in stored.field_list:
                field = cells[kind, name]
                if np.ndim(field) == 3:  # those of particles have one number each
                    arrays[str(kind), str(name)] = np.asarray(field), str(field.units)
        except (OSError, ValueError, KeyError, RuntimeError, IndexError, TypeError) as error:
            text = " ".join(str(error).split())[:300]
            raise DataError(f"yt does not read it ({text})", where=str(path)) from None
        if finest:
            _logger.warning(
                "%s: %d finer levels are left out; yt's covering_grid writes them", path, finest
            )
        edges = np.asarray(stored.domain_left_edge), np.asarray(stored.domain_right_edge)
        width = (edges[1] - edges[0]) / np.asarray(shape)
        dims = "xyz"[:rank]
        coordinates: dict[str, Any] = {
            dim: ((dim,), edges[0][k] + (np.arange(shape[k]) + 0.5) * width[k])
            for k, dim in enumerate(dims)
        }
        coordinates["time"] = _time(stored)
        # Memory of yt has x first; files of other programs have it last.
        variables = {
            name: (tuple(reversed(dims)), values.reshape(shape[:rank]).T, _units(unit))
            for name, (values, unit) in _named(arrays).items()
        }
        dataset = xr.Dataset(variables, coordinates)
        return dataset if chunks is None else dataset.chunk(chunks)


def _time(stored: Any) -> tuple[tuple[()], float, dict[str, str]]:
    """Return the time of an output, in seconds if the output states its unit of time."""
    if "TimeUnits" in stored.parameters:
        return (), float(stored.current_time.to("s")), {"units": "s"}
    return (), float(stored.current_time), {"long_name": "time in the simulation's own unit"}


def _named(arrays: dict[tuple[str, str], Any]) -> dict[str, Any]:
    """Return fields by name; those of one name in two groups as GROUP_NAME."""
    count = Counter(name for _, name in arrays)
    return {
        name if count[name] == 1 else f"{kind}_{name}": values
        for (kind, name), values in arrays.items()
    }


def _units(unit: str) -> dict[str, str]:
    """Return the attribute of a unit; none for numbers and for units of the code."""
    return {} if unit in ("", "dimensionless") or "code_" in unit else {"units": unit}


def is_plotfile(path: Path | str) -> bool:
    """Return whether a folder is a plotfile of AMReX, by its header."""
    header = Path(path) / "Header"
    return header.is_file() and file_head(header, 64).startswith((b"HyperCLaw", b"NavierStokes"))
