"""Plan of a compression, before anything is written: one row for each variable of a file.

Sizes are estimated from up to three chunks of a variable, the first, the middle and the last.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from scitoolkit.compression import chunked
from scitoolkit.compression.bounds import Bound
from scitoolkit.compression.compress import compress_within
from scitoolkit.compression.decoding import inspect_stream
from scitoolkit.compression.files import holds_one_array, read_array, refuse_folder
from scitoolkit.compression.hdf5_variables import as_hdf5, candidates_of
from scitoolkit.compression.missing import MissingValues
from scitoolkit.compression.native.library import chunk_parameters, encode_chunk
from scitoolkit.compression.plan import Candidate, FilePlan, wanted
from scitoolkit.compression.zarr_files import arrays_with_missing
from scitoolkit.compression.zarr_files import candidates_of as candidates_of_store
from scitoolkit.core.errors import ConfigError, damage_named
from scitoolkit.io.compressed import StoreFiles, is_store


@dataclass(frozen=True)
class PlannedVariable:
    """Row of a plan.

    Args:
        name: path of the variable.
        shape: extents.
        dtype: as stored.
        role: `data`, or why the variable is copied exactly (`io.variable_roles`).
        bound: `MODE=VALUE`, or `exact`.
        codec: by which it is coded, `copied` for exact variables.
        bytes: now in the file (of a Zarr array: without compression).
        estimated: bytes after compression.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    role: str
    bound: str
    codec: str
    bytes: int
    estimated: int


def planned(path: Path | str, plan: FilePlan) -> list[PlannedVariable]:
    """Return one row for each variable of a file, a store or a single-array file.

    Args:
        path: as for `files.compress_file`.
        plan: variables, bounds and options.

    Raises:
        DataError: the file is missing or in an unknown format.
        ConfigError: a variable is not in the file or not floating-point, or quantities are bounded.
        NumericalError: the range of a relative bound is set by a few outliers.
    """
    path = Path(path)
    if plan.quantities:
        raise ConfigError("a plan of quantities", where=str(path), allowed="bounds of variables")
    in_chunks = plan.in_chunks(str(path))
    if is_store(path):
        files = StoreFiles(path)
        candidates = candidates_of_store(files)
        bounds = wanted(candidates, plan, str(path))
        return [
            _row(name, array, array.nbytes, missing, candidates.get(name), bounds, plan, in_chunks)
            for name, array, missing in arrays_with_missing(files)
        ]
    refuse_folder(path)
    if holds_one_array(path):
        values = np.asarray(read_array(path, plan.shape))
        bounds = {path.name: plan.bound} if plan.bound and values.dtype.kind == "f" else {}
        none = MissingValues()
        return [_row(path.name, values, values.nbytes, none, None, bounds, plan, False)]
    with damage_named(path), as_hdf5(path) as file:
        candidates = candidates_of(file)
        bounds = wanted(candidates, plan, str(path))
        rows = []
        for name, item in _datasets(file):
            missing = MissingValues.of_dataset(item) if name in bounds else MissingValues()
            size = item.id.get_storage_size()
            rows.append(
                _row(name, item, size, missing, candidates.get(name), bounds, plan, in_chunks)
            )
        return rows


def _datasets(file: h5py.File) -> Iterator[tuple[str, h5py.Dataset]]:
    items: list[h5py.Dataset] = []

    def visit(_: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.shape is not None:
            items.append(item)

    file.visititems(visit)
    return ((item.name, item) for item in items)


def _row(
    name: str,
    item: Any,
    stored: int,
    missing: MissingValues,
    candidate: Candidate | None,
    bounds: dict[str, Bound],
    plan: FilePlan,
    in_chunks: bool,
) -> PlannedVariable:
    bound, shown = bounds.get(name), name.lstrip("/") or "/"
    role = (candidate.role if candidate else "") or "data"
    shape, dtype = tuple(item.shape), str(item.dtype)
    if bound is None:
        return PlannedVariable(shown, shape, dtype, role, "exact", "copied", stored, stored)
    codec, share = _estimate(item, bound, plan.missing | missing, plan, shown, in_chunks)
    size = round(share * math.prod(shape) * item.dtype.itemsize)
    text = f"{bound.mode}={bound.value:g}"
    return PlannedVariable(shown, shape, dtype, role, text, codec, stored, size)


def _estimate(
    item: Any, bound: Bound, missing: MissingValues, plan: FilePlan, name: str, in_chunks: bool
) -> tuple[str, float]:
    """Return the codec of a variable, and its bytes as a fraction of those of its values."""
    whole = item if item.ndim else np.asarray(item).reshape(1)
    survey = chunked.survey(whole, bound, missing, name)
    filtered = in_chunks and not (chunked.refusal(item, bound, missing) or survey.refusal)
    before = after = 0
    codec = "interpolation (filter)"
    for values in chunked.sample(whole):
        if filtered:
            words = chunk_parameters(
                values.shape, values.dtype, survey.absolute, survey.fill, survey.extras
            )
            coded = encode_chunk(values, words)
        else:
            options = plan.options_of(name)
            extent = survey.extent
            coded = compress_within(values, bound, options, missing=missing, extent=extent)
            codec = f"{inspect_stream(coded)['base']['name']} (stream)"
        before, after = before + values.nbytes, after + len(coded)
    return codec, after / max(before, 1)
