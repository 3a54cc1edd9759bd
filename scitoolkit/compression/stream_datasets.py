"""Datasets of an HDF5 file that hold the streams of variables, and the headers beside them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from scitoolkit.compression import filtered
from scitoolkit.compression.decoding import inspect_stream
from scitoolkit.compression.hdf5_copy import (
    LEFT_OUT,
    Hdf5Copy,
    Left,
    Replacement,
    create_like,
    object_key,
)
from scitoolkit.compression.progressive import Preview, preview
from scitoolkit.compression.slabs import iterate_slabs
from scitoolkit.core.errors import DataError
from scitoolkit.io.compressed import FILTERED, STREAM, mark_of

HEADER = "scitoolkit_header"
"""Attribute of a stream: path of the empty dataset that describes its variable."""


NAME = "scitoolkit_name"


BYTES = "scitoolkit_bytes"
"""Attribute of a stream: path of its dimension scale, which netCDF readers require."""


LAYOUT = 2


# Attribute of a stream in files of layout 1: names of the dimension scales.
_DIMS = "scitoolkit_dims"


class RestoredVariables:
    """Replaces streams by their decompressed variables while a file is copied."""

    def __init__(self, file: h5py.File, share: float) -> None:
        self.file, self.share = file, share
        self.records: list[dict[str, Any]] = []
        self.scales: dict[str, list[str]] = {}
        self._headers = header_keys(file)

    def replace(
        self, item: h5py.Dataset, parent: h5py.Group, name: str, copy: Hdf5Copy
    ) -> Replacement | Left | None:
        """Return the variable of a stream, `LEFT_OUT` for a header, else None."""
        if object_key(item) in self._headers:
            return LEFT_OUT
        mark = mark_of(item)
        if mark == FILTERED:
            if self.share < 1:
                raise DataError(
                    f"{item.name} is coded in chunks, which have no coarse picture",
                    fix="scitoolkit compress --progressive",
                )
            self.records.append({"name": item.name.lstrip("/")})
            made = filtered.restore(item, parent, name, copy.type_of(item))
            return Replacement(made, made, item, frozenset({FILTERED}))
        if mark != STREAM:
            return None
        variable = variable_name(item)
        stream = item[...].tobytes()
        if self.share < 1:
            picture = preview(stream, self.share)
            self.records.append(picture_record(variable, picture))
            slabs: Iterable[np.ndarray] = (picture.values,)
        else:
            self.records.append({"name": variable})
            slabs = iterate_slabs(stream)
        if HEADER not in item.attrs:
            return self._first_layout(item, stream, parent, name)
        header = self.file[item.attrs[HEADER]]
        made = create_like(header, parent, name, copy.type_of(header))
        _fill(made, slabs)
        copy.refer(header, made)
        return Replacement(made, made, header)

    def _first_layout(
        self, item: h5py.Dataset, stream: bytes, parent: h5py.Group, name: str
    ) -> Replacement:
        """Restore a variable of a file of version 0.1, which stored only shape and dims."""
        about = inspect_stream(stream)
        shape = tuple(about["shape"])
        chunks = True if shape and math.prod(shape) else None
        made = parent.create_dataset(name, shape, np.dtype(about["dtype"]), chunks=chunks)
        _fill(made, iterate_slabs(stream))
        self.scales[made.name] = [str(n) for n in item.attrs[_DIMS]]
        return Replacement(made, made, item, frozenset({STREAM, _DIMS}))


def picture_record(name: str, picture: Preview) -> dict[str, Any]:
    """Return what `preview_file` states of a variable."""
    errors = {"max_error": picture.max_error, "rmse": picture.rmse}
    return {"name": name, "bytes": picture.num_bytes, **errors}


def _fill(made: h5py.Dataset, slabs: Iterable[np.ndarray]) -> None:
    start = 0
    for slab in slabs:
        if not slab.ndim:
            made[()] = slab
        elif slab.size:
            made[start : start + len(slab)] = slab
            start += len(slab)


def variable_name(stream: h5py.Dataset) -> str:
    """Return the name of a variable when it was compressed; hard links give it several names."""
    return str(stream.attrs.get(NAME, stream.name.lstrip("/")))


def attach_scales(target: Path, scales: Mapping[str, list[str]]) -> None:
    """Attach the dimension scales {variable: their names} in a file."""
    with h5py.File(target, "r+") as file:
        for variable, names in scales.items():
            for axis, name in enumerate(names):
                if name and name in file:
                    file[variable].dims[axis].attach_scale(file[name])


def next_dim_number(file: h5py.File) -> int:
    """Return the smallest number above the netCDF-4 dimension ids of a file."""
    ranks = [-1]

    def visit(_: str, item: Any) -> None:
        if "_Netcdf4Dimid" in item.attrs:
            ranks.append(int(item.attrs["_Netcdf4Dimid"]))

    file.visititems(visit)
    return max(ranks) + 1


def label_bytes(stream: h5py.Dataset, number: int) -> None:
    """Attach a dimension scale to the bytes of a stream, as all variables of its file have one.

    Without it, netCDF-4 readers treat the dimensions of other variables as anonymous.
    """
    path = stream.name + ".bytes"
    while path in stream.file:
        path += "_"
    scale = stream.file.create_dataset(path, stream.shape, ">f4")
    # The text by which netCDF-C recognises a dim without coordinate values.
    scale.make_scale(f"This is a netCDF dimension but not a netCDF variable.{stream.size:10d}")
    scale.attrs["_Netcdf4Dimid"] = np.int32(number)
    stream.dims[0].attach_scale(scale)
    stream.attrs[BYTES] = scale.name


def unused_header_name(item: h5py.Dataset, name: str) -> str:
    """Return an unused name for the header of a variable in its group."""
    unused = f"{name}.header"
    while unused in item.parent:
        unused += "_"
    return unused


def header_keys(file: h5py.File) -> set[tuple[int, int]]:
    """Return the `object_key` of each header and of each scale of bytes."""
    keys: set[tuple[int, int]] = set()

    def visit(_: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset):
            described = [item.attrs[key] for key in (HEADER, BYTES) if key in item.attrs]
            keys.update(object_key(file[path]) for path in described)

    file.visititems(visit)
    return keys
