"""Comparing what was compressed with what it was made of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.compression import filtered
from scitoolkit.compression.bounds import Bound, max_error, psnr
from scitoolkit.compression.compress import decompress, inspect_stream
from scitoolkit.compression.files import (
    as_hdf5,
    filtered_variables,
    holds_one_array,
    opened,
    read_array,
    streams,
)
from scitoolkit.compression.missing import MissingValues
from scitoolkit.compression.pointwise import exceeds
from scitoolkit.compression.quality import quality
from scitoolkit.compression.value_range import ValueRange
from scitoolkit.core.errors import DataError
from scitoolkit.io.compressed import holds_streams, is_stream

# The range in a header is written in the shortest decimals of its dtype.
RANGE_ROUNDING = 1e-6


def describe_streams(path: Path) -> list[dict[str, Any]]:
    """Return what the streams of a file say about themselves; empty when it holds none."""
    path = Path(path)
    if not holds_streams(path):
        return []
    found = [{"name": name, **inspect_stream(stream)} for name, stream in streams(path)]
    if not is_stream(path):
        with opened(path) as file:
            names = filtered_variables(file)
            found += [{"name": name, **filtered.about(file[name])} for name in names]
    return found


def verify_file(
    compressed: Path | str, original: Path | str, *, with_quality: bool = False
) -> list[dict[str, Any]]:
    """Return for each compressed variable and quantity the errors against the original file.

    Args:
        compressed: what `compress_file` wrote.
        original: the file that it was made of.
        with_quality: add the figures of `quality.quality`.
    """
    found = list(streams(compressed))
    if not is_stream(Path(compressed)):
        with opened(Path(compressed)) as file:
            behind = filtered_variables(file)
    else:
        behind = []
    if not found and not behind:
        raise DataError("nothing in it was compressed by scitoolkit", where=str(compressed))
    original = Path(original)
    if not original.is_file():
        raise DataError("no such file", where=str(original))
    if holds_one_array(original):
        name, stream = found[0]
        values = np.asarray(read_array(original, tuple(inspect_stream(stream)["shape"])))
        record = verify_array(name, stream, values, with_quality=with_quality)
        return [record, *_quantities(found, {name: values})]
    with as_hdf5(original) as file:
        missing = [name for name, _ in found if name not in file]
        if missing:
            raise DataError(f"no variable {missing[0]!r}", where=str(original))
        records = [
            verify_array(
                name,
                stream,
                file[name][...],
                MissingValues.of_dataset(file[name]),
                with_quality=with_quality,
            )
            for name, stream in found
        ]
        if behind:
            filtered.load_filter()
            with opened(Path(compressed)) as small:
                for name in behind:
                    if name not in file:
                        raise DataError(f"no variable {name!r}", where=str(original))
                    records.append(compared(
                        name, filtered.about(small[name]), small[name][...], file[name][...],
                        MissingValues.of_dataset(file[name]), with_quality=with_quality,
                    ))  # fmt: skip
        return [*records, *_quantities(found, file)]


def _quantities(found: list[tuple[str, bytes]], originals: Any) -> list[dict[str, Any]]:
    if not any("quantities" in inspect_stream(stream) for _, stream in found):
        return []
    from scitoolkit.compression.file_quantities import verify_quantities  # reads with sympy

    return list(verify_quantities(found, originals))


def verify_array(
    name: str, stream: bytes, original: np.ndarray, missing: MissingValues | None = None, *,
    with_quality: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Return the errors of one stream against its original, and whether its bound holds.

    Args:
        name: of the variable.
        stream: to decode.
        original: the values that were compressed.
        missing: the missing values that the original's file names; those that the stream names
            are added. They must be restored bit for bit, and a bound that refers to the range
            refers to that of the others.
        with_quality: add the figures of `quality.quality`.

    Returns:
        name, max_error, allowed, psnr, holds, and why the bound is none (`problem`), "" if it is.
    """
    about, decoded = inspect_stream(stream), decompress(stream)
    return compared(name, about, decoded, original, missing, with_quality=with_quality)


def compared(
    name: str, about: dict[str, Any], decoded: np.ndarray, original: np.ndarray,
    missing: MissingValues | None = None, *, with_quality: bool = False,
) -> dict[str, Any]:  # fmt: skip
    """Return the record of `verify_array` for decoded values and what their header says."""
    if decoded.shape != original.shape or decoded.dtype != original.dtype:
        raise DataError(
            f"{name} is {original.dtype}{original.shape}, compressed was "
            f"{decoded.dtype}{decoded.shape}"
        )
    if decoded.dtype.kind != "f":
        same = bool((decoded == original).all())
        return _found(name, 0.0 if same else np.inf, 0.0, np.inf if same else -np.inf, same)
    known = MissingValues.from_header(about) | (missing or MissingValues())
    masked = known.where(original)
    kept = bool((known.where(decoded) == masked).all())
    kept &= np.array_equal(original[masked], decoded[masked], equal_nan=True)
    figures = quality(original, decoded, masked) if with_quality else {}
    original, decoded = original[~masked], decoded[~masked]
    reached = psnr(original, decoded)
    mode, value = about["bound"]["mode"], about["bound"]["value"]
    allowed, problem = _allowed(about, original)
    if mode == "pw_rel":
        away, largest = exceeds(original, decoded, value)
        return _found(name, largest, value, reached, kept and not len(away)) | figures
    largest = max_error(original, decoded)
    if mode == "psnr":
        holds = kept and reached >= value and not problem
        return _found(name, largest, np.inf, reached, holds, problem) | figures
    holds = kept and largest <= allowed and not problem
    return _found(name, largest, allowed, reached, holds, problem) | figures


def _allowed(about: dict[str, Any], valid: np.ndarray) -> tuple[float, str]:
    """Return the bound that the valid values of the original set, and why it is none.

    The bound in the header may refer to a range that fill values have widened.
    """
    bound = Bound(about["bound"]["mode"], about["bound"]["value"])
    allowed, problem = about.get("error_bound", 0.0), ""
    seen = ValueRange()
    seen.add(valid)
    if bound.of_range and seen.extent and "error_bound" in about:
        problem = seen.dominated()
        own = bound.absolute(*seen.extent)
        allowed = own if allowed > own * (1 + RANGE_ROUNDING) else allowed
    return allowed * (2 if about.get("relaxed") else 1), problem


def _found(
    name: str, largest: float, allowed: float, reached: float, holds: bool, problem: str = ""
) -> dict[str, Any]:
    return {
        "name": name, "max_error": float(largest), "allowed": float(allowed),
        "psnr": float(reached), "holds": bool(holds), "problem": problem,
    }  # fmt: skip
