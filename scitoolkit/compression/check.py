"""Verification of compressed files against their originals."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.compression.bounds import Bound, max_error, psnr
from scitoolkit.compression.decoding import inspect_stream
from scitoolkit.compression.files import (
    holds_one_array,
    read_array,
    refuse_folder,
    stored_variables,
)
from scitoolkit.compression.hdf5_variables import as_hdf5
from scitoolkit.compression.missing import MissingValues
from scitoolkit.compression.pointwise import exceeds
from scitoolkit.compression.quality import quality
from scitoolkit.compression.stored import Stored, compressed_original
from scitoolkit.compression.value_range import ArrayRange
from scitoolkit.compression.zarr_files import original_array
from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.io.compressed import holds_streams, is_store, is_stream, mark_of

log = get_logger(__name__)
# The range in a header is written in the shortest decimals of its dtype.
RANGE_ROUNDING = 1e-6


def describe_streams(path: Path) -> list[dict[str, Any]]:
    """Return name and header of each compressed variable of a file; empty if it has none."""
    path = Path(path)
    if not holds_streams(path):
        return []
    return [{"name": one.name, **one.about} for one in stored_variables(path)]


def verify_file(
    compressed: Path | str, original: Path | str, *, with_quality: bool = False
) -> list[dict[str, Any]]:
    """Return one error record for each compressed variable and quantity of a file.

    Args:
        compressed: file written by `compress_file`.
        original: the file that was compressed.
        with_quality: add the metrics of `quality.quality`.
    """
    records, streams = [], []
    for one in examine(compressed, Path(original), with_quality=with_quality):
        records.append(one.record)
        if one.stored.stream is not None:
            streams.append((one.stored.name, one.stored.stream))
    return [*records, *quantity_records(streams, Path(original))]


@dataclass(frozen=True)
class Examined:
    """A compressed variable paired with its original.

    Args:
        stored: the compressed variable.
        original: values before compression.
        decoded: values after decompression.
        missing: the missing values declared in the original file.
        record: see `compared`.
        unit: unit that the original states, "" if it states none.
        dims: names of the dims of the original, empty if it names none.
    """

    stored: Stored
    original: np.ndarray
    decoded: np.ndarray
    missing: MissingValues
    record: dict[str, Any]
    unit: str = ""
    dims: tuple[str, ...] = ()


def examine(
    compressed: Path | str, original: Path, *, with_quality: bool = False
) -> Iterator[Examined]:
    """Yield each compressed variable paired with its original, one in memory at a time.

    Args:
        compressed: file written by `compress_file`.
        original: the file that was compressed.
        with_quality: add the metrics of `quality.quality`.

    Raises:
        DataError: the file has no compressed variable, or one that the original does not have or
            holds in compressed form.
    """
    for one, values, missing, unit, dims in _pairs(compressed, original):
        decoded = one.decode()
        record = compared(one.name, one.about, decoded, values, missing, with_quality=with_quality)
        yield Examined(one, values, decoded, missing, record, unit, dims)


def quantity_records(streams: list[tuple[str, bytes]], original: Path) -> list[dict[str, Any]]:
    """Return the error records of the derived quantities listed in the headers of streams.

    Args:
        streams: (variable, stream) pairs.
        original: the file that was compressed.
    """
    if not any("quantities" in inspect_stream(stream) for _, stream in streams):
        return []
    from scitoolkit.compression.file_quantities import verify_quantities  # reads with sympy

    if holds_one_array(original):
        name, stream = streams[0]
        values = read_array(original, tuple(inspect_stream(stream)["shape"]))
        return list(verify_quantities(streams, {name: np.asarray(values)}))
    with as_hdf5(original) as file:
        return list(verify_quantities(streams, file))


def _pairs(
    compressed: Path | str, original: Path
) -> Iterator[tuple[Stored, np.ndarray, MissingValues, str, tuple[str, ...]]]:
    is_zarr = is_store(original)
    if not is_zarr:
        refuse_folder(original)
        if is_stream(original):
            raise compressed_original(str(original))
    nothing = True
    with contextlib.ExitStack() as stack:
        single = not is_zarr and holds_one_array(original)
        file = None if is_zarr or single else stack.enter_context(as_hdf5(original))
        for one in stored_variables(compressed):
            nothing = False
            if file is not None:
                if one.name not in file:
                    raise DataError(f"no variable {one.name!r}", where=str(original))
                dataset = file[one.name]
                if mark_of(dataset):
                    raise compressed_original(f"{original}: {one.name}")
                unit = dataset.attrs.get("units", "")
                unit = unit.decode() if isinstance(unit, bytes) else str(unit)
                missing = MissingValues.of_dataset(dataset)
                yield one, dataset[...], missing, unit, _dim_names(dataset)
            elif is_zarr:
                yield one, *original_array(original, one.name), "", ()
            else:
                values = np.asarray(read_array(original, tuple(one.about["shape"])))
                yield one, values, MissingValues(), "", ()
    if nothing:
        raise DataError(
            "no variable compressed by scitoolkit",
            where=str(compressed),
            fix="scitoolkit verify COMPRESSED ORIGINAL, in this order",
        )


def _dim_names(dataset: Any) -> tuple[str, ...]:
    """Return the names of an HDF5 dataset's dims from labels or scales; empty if one has none."""
    try:
        names = [
            dim.label or (dim[0].name.rpartition("/")[2] if len(dim) else "")
            for dim in dataset.dims
        ]
    except RuntimeError:  # a scale that the file refers to is not in it
        return ()
    return tuple(map(str, names)) if all(names) else ()


def compared(
    name: str,
    about: Mapping[str, Any],
    decoded: np.ndarray,
    original: np.ndarray,
    missing: MissingValues | None = None,
    *,
    with_quality: bool = False,
) -> dict[str, Any]:
    """Return the errors of decoded values against their original, and whether the bound holds.

    Args:
        name: of the variable.
        about: header of the stream, dataset or array.
        decoded: its values.
        original: the values that were compressed.
        missing: the missing values declared in the original file; those in `about` are added.
            They must be restored bit for bit, and are excluded from the range that a relative
            bound refers to.
        with_quality: add the metrics of `quality.quality`.

    Returns:
        name, max_error, allowed, psnr, holds, and `problem`: why the bound is meaningless, "" if
        it is not.

    Raises:
        DataError: shape or dtype differ; rows appended along the first dim are allowed.
    """
    rows = original.shape[:1]
    if original.ndim and decoded.shape[1:] == original.shape[1:] and decoded.shape[:1] > rows:
        log.warning(
            "%s: %d rows were appended to the compressed variable; the first %d are compared",
            name,
            len(decoded) - rows[0],
            rows[0],
        )
        decoded = decoded[: rows[0]]
    if decoded.shape != original.shape or decoded.dtype != original.dtype:
        raise DataError(
            f"{name}: the original is {original.dtype}{original.shape}, "
            f"the compressed variable {decoded.dtype}{decoded.shape}"
        )
    if decoded.dtype.kind != "f":
        same = bool((decoded == original).all())
        return _found(name, 0.0 if same else np.inf, 0.0, np.inf if same else -np.inf, same)
    missing_values = MissingValues.from_header(about) | (missing or MissingValues())
    masked = missing_values.where(original)
    # Compared before valid points are selected: a valid value that decodes to a missing one may be
    # within the bound, but readers would mask it.
    equal = bool((missing_values.where(decoded) == masked).all())
    equal &= np.array_equal(original[masked], decoded[masked], equal_nan=True)
    figures = quality(original, decoded, masked) if with_quality else {}
    original, decoded = original[~masked], decoded[~masked]
    reached = psnr(original, decoded)
    mode, value = about["bound"]["mode"], about["bound"]["value"]
    allowed, problem = _allowed(about, original)
    if mode == "pw_rel":
        away, largest = exceeds(original, decoded, value)
        return _found(name, largest, value, reached, equal and not len(away)) | figures
    largest = max_error(original, decoded)
    if mode == "psnr":
        holds = equal and reached >= value and not problem
        return _found(name, largest, np.inf, reached, holds, problem) | figures
    holds = equal and largest <= allowed and not problem
    return _found(name, largest, allowed, reached, holds, problem) | figures


def _allowed(about: Mapping[str, Any], valid: np.ndarray) -> tuple[float, str]:
    """Return the absolute bound recomputed from the valid original values, and its problem.

    The bound in the header may have been computed from a range widened by fill values.
    """
    bound = Bound(about["bound"]["mode"], about["bound"]["value"])
    allowed, problem = about.get("error_bound", 0.0), ""
    seen = ArrayRange()
    seen.add(valid)
    if bound.of_range and seen.extent and "error_bound" in about:
        problem = seen.dominated()
        # The bound in the header is not trusted: a writer that took too large a range would verify
        # its own mistake.
        recomputed = bound.absolute(*seen.extent)
        allowed = recomputed if allowed > recomputed * (1 + RANGE_ROUNDING) else allowed
    return allowed * (2 if about.get("relaxed") else 1), problem


def _found(
    name: str, largest: float, allowed: float, reached: float, holds: bool, problem: str = ""
) -> dict[str, Any]:
    return {
        "name": name,
        "max_error": float(largest),
        "allowed": float(allowed),
        "psnr": float(reached),
        "holds": bool(holds),
        "problem": problem,
    }
