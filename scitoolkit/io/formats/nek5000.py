"""Format of field files of Nek5000 and NekRS on boxes of elements, through pymech."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.io.formats.base import Format, file_head

if TYPE_CHECKING:
    import xarray as xr

_SAME = 1e-5
"""Distance of two points at one place, of the extent: positions are often stored in float32."""


class Nek5000(Format):
    """Nek5000 and NekRS (`NAME0.f00001`), elements that fill a box, through pymech.

    Each holds one time. Points that elements share are one, with the mean of their values. The
    positions are in the first file of a run only, which is read beside the others.
    """

    name: ClassVar[str] = "nek5000"
    requires: ClassVar[tuple[str, ...]] = ("pymech",)
    extra: ClassVar[str] = "nek5000"

    @classmethod
    def guess(cls, path: Path) -> float:
        """Return 1 for the first bytes of a field file."""
        return float(file_head(path, 5) == b"#std ")

    @classmethod
    def open_dataset(cls, path: Path, *, chunks: Any = None, decode: bool = True) -> xr.Dataset:
        """Read the fields into memory.

        Raises:
            DataError: the elements fill no box, no file has their positions, or it is damaged.
        """
        import xarray as xr

        data, mesh = _read(path), _read(_with_positions(path))
        points = np.concatenate([e.pos.reshape(3, -1) for e in mesh.elem], axis=1)
        axes, number = {}, np.zeros(points.shape[1], np.int64)
        for dim, along in zip("zyx", points[::-1], strict=True):
            ordered = np.sort(along)
            apart = np.diff(ordered, prepend=-np.inf) > _SAME * float(np.ptp(along))
            if apart.sum() > 1:
                axes[dim] = ordered[apart]
                middle = 0.5 * (axes[dim][1:] + axes[dim][:-1])
                number = number * len(axes[dim]) + np.searchsorted(middle, along)
        shape = tuple(map(len, axes.values()))
        size = int(np.prod(shape, dtype=np.float64))
        # Of a deformed mesh, lines through all points would make a grid of far more points.
        count = np.bincount(number, minlength=size) if 1 < size <= len(number) else np.zeros(1)
        # At a point of a box, two elements meet in each direction.
        if count.min() < 1 or count.max() > 8 or len(data.elem) != len(mesh.elem):
            raise DataError(
                "its elements fill no box with sides along x, y and z",
                where=str(path),
                fix="interpolate to a regular grid (hpts of Nek5000, pySEMTools) and write NetCDF",
            )
        variables = {}
        for name, parts in _fields(data).items():
            mean = np.bincount(number, np.concatenate(parts), len(count)) / count
            variables[name] = (tuple(axes), mean.astype(f"f{data.wdsz}").reshape(shape))
        coordinates = {**{d: ((d,), line) for d, line in axes.items()}, "time": ((), data.time)}
        dataset = xr.Dataset(variables, coordinates)
        return dataset if chunks is None else dataset.chunk(chunks)


def _fields(data: Any) -> dict[str, list[np.ndarray]]:
    """Return {name: values of each element, flat}, of all but the positions."""
    groups = {"vel": ["ux", "uy", "uz"][: data.var[1]], "pres": ["pressure"][: data.var[2]]}
    groups["temp"] = ["temperature"][: data.var[3]]
    groups["scal"] = [f"s{number + 1:02d}" for number in range(data.var[4])]
    return {
        name: [np.asarray(getattr(e, group)[k], np.float64).ravel() for e in data.elem]
        for group, names in groups.items()
        for k, name in enumerate(names)
    }


def _with_positions(path: Path) -> Path:
    """Return the file of a run with the positions: itself, or the first of the others."""
    run = path.with_suffix("").name
    others = (p for p in sorted(path.parent.iterdir()) if re.fullmatch(r"\.f\d+", p.suffix))
    for file in (path, *(p for p in others if p.with_suffix("").name == run)):
        if _words(file)[11].startswith(b"X"):
            return file
    raise DataError(
        "it has no positions, nor has a file of the same run",
        where=str(path),
        fix="the first file of the run beside it, or param(66) and ifxyo=.true. in all",
    )


def _words(path: Path) -> list[bytes]:
    """Return the header: after `#std`, sizes, elements here and in all, and last fields as XUPT."""
    return [*file_head(path, 132).split(), *[b""] * 12][:12]


def _read(path: Path) -> Any:
    from pymech.neksuite import readnek

    here, everywhere = (word.decode(errors="replace") for word in _words(path)[5:7])
    if here != everywhere:  # pymech would leave the others at 0
        text = f"{here} of {everywhere} elements"
        raise DataError(text, where=str(path), fix="param(65) = 1: one file for each time")
    try:
        return readnek(str(path))
    except Exception as error:  # damaged files end in errors of struct and numpy
        text = " ".join(str(error).split())[:200]
        raise DataError(f"pymech does not read it ({text})", where=str(path)) from None
