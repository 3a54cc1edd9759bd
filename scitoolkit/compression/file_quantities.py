"""Derived quantities of a file's variables: grouping, joint compression and verification."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np

from scitoolkit.compression.arrays import split_mask
from scitoolkit.compression.bounds import Bound
from scitoolkit.compression.choose import Options
from scitoolkit.compression.decoding import decompress, inspect_stream
from scitoolkit.compression.mask import special_values
from scitoolkit.compression.missing import MissingValues
from scitoolkit.compression.quantities import (
    QUANTITIES,
    QuantityText,
    compress_quantities,
    grid_of,
)
from scitoolkit.compression.quantities.check import compared
from scitoolkit.compression.quantities.repair import as_float
from scitoolkit.core.errors import DataError

DEFAULT_DIMS = ("t", "z", "y", "x")


@dataclass(frozen=True)
class Group:
    """Quantities that share variables, and these variables.

    Args:
        paths: name in the texts -> path in the file.
        texts: of the quantities.
    """

    paths: Mapping[str, str]
    texts: tuple[str, ...]


def groups(floats: Mapping[str, h5py.Dataset], texts: Iterable[str]) -> list[Group]:
    """Group the quantities of a file that have variables in common.

    Args:
        floats: path -> dataset of floating-point numbers.
        texts: quantities; they name variables by the last part of their path.

    Raises:
        ConfigError: a text is invalid, or names a variable that the file does not have.
    """
    dims = list(
        dict.fromkeys(
            [d for item in floats.values() for d in names_of(item) or ()] + list(DEFAULT_DIMS)
        )
    )
    leaves = {path.rpartition("/")[2]: path for path in floats}
    fields = [leaf for leaf in leaves if leaf.isidentifier() and leaf not in dims]
    grouped: list[tuple[set[str], list[str]]] = []
    for text in texts:
        names, together = set(QuantityText.read(text).variables(fields, dims)), [text]
        # A text may have variables in common with several groups and then joins them to one.
        for other in [f for f in grouped if f[0] & names]:
            grouped.remove(other)
            names, together = names | other[0], [*other[1], *together]
        grouped.append((names, together))
    return [Group({n: leaves[n] for n in sorted(names)}, tuple(t)) for names, t in grouped]


def streams_of(
    file: h5py.File,
    group: Group,
    bounds: Mapping[str, Bound | None],
    options: Options,
    missing: MissingValues,
) -> dict[str, bytes]:
    """Compress the variables of a group and return path -> stream.

    Args:
        file: the file of the paths.
        group: variables and quantities.
        bounds: path -> additional bound of the variable.
        options: codec, enhancer, objective.
        missing: values that mark missing data, in addition to those declared in the file.
    """
    items = {name: file[path] for name, path in group.paths.items()}
    dims, coordinates = axes_of(next(iter(items.values())))
    streams = compress_quantities(
        {name: item[...] for name, item in items.items()},
        group.texts,
        bounds={name: bounds.get(path) for name, path in group.paths.items()},
        options=options,
        missing={n: missing | MissingValues.of_dataset(item) for n, item in items.items()},
        dims=dims,
        coordinates=coordinates,
    )
    return {group.paths[name]: stream for name, stream in streams.items()}


def names_of(item: h5py.Dataset) -> list[str] | None:
    """Return the names of a dataset's dims; None if one has no valid name or two are equal."""
    names = []
    for dim in item.dims:
        scale = dim[0].name.rpartition("/")[2] if len(dim) else ""
        names.append(dim.label or scale)
    good = all(name.isidentifier() for name in names) and len(set(names)) == len(names)
    return names if good else None


def axes_of(item: h5py.Dataset) -> tuple[list[str] | None, dict[str, np.ndarray]]:
    """Return the names of dims, and the positions of dims with a monotonic dimension scale."""
    dims = names_of(item)
    coordinates: dict[str, np.ndarray] = {}
    for name, dim, n in zip(dims or (), item.dims, item.shape, strict=False):
        if not len(dim) or dim[0].shape != (n,) or dim[0].dtype.kind not in "fiu":
            continue
        steps = np.diff(dim[0][...].astype(np.float64))
        if steps.size and (np.all(steps > 0) or np.all(steps < 0)):
            coordinates[name] = dim[0][...].astype(np.float64)
    return dims, coordinates


def verify_quantities(
    streams: Sequence[tuple[str, bytes]],
    originals: Mapping[str, Any],
    coordinates: Mapping[str, np.ndarray] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the error record of each quantity listed in the headers of streams.

    Args:
        streams: (variable, stream) pairs.
        originals: name -> array or HDF5 dataset.
        coordinates: dim -> positions; those of the datasets by default.

    Raises:
        DataError: a variable of a quantity is not among the streams.
    """
    named = {name: inspect_stream(stream) for name, stream in streams}
    named = {name: about for name, about in named.items() if QUANTITIES in about}
    texts: dict[str, tuple[list[str], list[str]]] = {}
    for about in named.values():
        stated = about[QUANTITIES]
        texts |= {text: (stated["variables"], stated["dims"]) for text in stated["texts"]}
    bytes_of = dict(streams)
    for text, (variables, dims) in texts.items():
        parts = QuantityText.read(text)
        paths = {v: p for v in parts.variables(variables, dims) if (p := _path(v, text, named))}
        if missing := set(parts.variables(variables, dims)) - set(paths):
            raise DataError(f"quantity {text!r} requires {min(missing)!r}, which has no stream")
        original, decoded = {}, {}
        # Of each quantity: dims of other variables may have the same names and other positions.
        positions = coordinates
        for name, path in paths.items():
            item, missing_values = originals[path], MissingValues.from_header(named[path])
            if isinstance(item, h5py.Dataset):
                missing_values |= MissingValues.of_dataset(item)
                positions = positions or axes_of(item)[1]
            values, mask = split_mask(np.asanyarray(item[...]))
            floats = values.dtype.kind == "f"
            special = special_values(values, missing_values, mask) if floats else None
            original[name] = as_float(values, special)
            back = split_mask(np.asanyarray(decompress(bytes_of[path])))[0]
            decoded[name] = as_float(back, special)
        shapes = {name: x.shape for name, x in original.items()}
        yield dict(compared(parts, grid_of(shapes, dims, positions), original, decoded))


def _path(variable: str, text: str, named: Mapping[str, Mapping[str, Any]]) -> str:
    for path, about in named.items():
        texts = about[QUANTITIES]
        if text in texts["texts"] and texts["name"] == variable:
            return path
    return ""
