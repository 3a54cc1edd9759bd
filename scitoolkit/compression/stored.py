"""Compressed variables of any container, with header and values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from scitoolkit.compression.decoding import decompress, inspect_stream
from scitoolkit.core.errors import DataError


@dataclass(frozen=True)
class Stored:
    """Compressed variable.

    Args:
        name: of the variable when it was compressed.
        about: the entries of a stream's header, `bytes` and `ratio`.
        decode: returns the values.
        stream: its stream; None for variables coded in chunks.
        enhancer: name and bytes of the enhancer of its chunks; None if it has none.
    """

    name: str
    about: Mapping[str, Any]
    decode: Callable[[], np.ndarray]
    stream: bytes | None = None
    enhancer: tuple[str, bytes] | None = None

    @classmethod
    def of_stream(cls, name: str, stream: bytes) -> Stored:
        """Return the variable of a stream."""
        return cls(name, inspect_stream(stream), lambda: decompress(stream), stream)


def record(name: str, about: Mapping[str, Any]) -> dict[str, Any]:
    """Return the record of a variable that `compress` reports.

    Args:
        name: of the variable.
        about: see `Stored`.
    """
    return {
        "name": name,
        "shape": about["shape"],
        "dtype": about["dtype"],
        "codec": about["base"]["name"],
        "enhancer": about.get("enhancer", {}).get("name", "none"),
        "bytes": about["bytes"],
        "ratio": about["ratio"],
        "error_bound": about.get("error_bound", 0.0),
        "max_error": about["max_error"],
    }


def compressed_original(where: str) -> DataError:
    """Return the error of an original whose values are decoded ones, so that no error is seen."""
    return DataError(
        "the original is compressed itself, so that its values are not those before compression",
        where=where,
        fix="scitoolkit verify COMPRESSED ORIGINAL, with the file that was compressed",
    )


def about_chunks(
    stored: Any, item: Any, codec: str, stored_bytes: int, where: str
) -> dict[str, Any]:
    """Return the header of a variable coded in chunks, with the keys of a stream's header.

    Args:
        stored: its attribute: the entries of `chunked.Survey.header` and the original's storage.
        item: the variable, with `shape` and `dtype`.
        codec: name of the codec.
        stored_bytes: size of its chunks.
        where: name of the variable, for messages.

    Raises:
        DataError: the attribute is damaged.
    """
    try:
        size = int(np.prod(item.shape)) * item.dtype.itemsize
        mode, value = stored["bound"]["mode"], float(stored["bound"]["value"])
        return {
            **stored,
            "bound": {"mode": mode, "value": value},
            "storage": dict(stored["storage"]),
            "shape": list(item.shape),
            "dtype": item.dtype.str,
            "base": {"name": codec},
            "max_error": float(stored["error_bound"]),
            "bytes": stored_bytes,
            "ratio": size / max(stored_bytes, 1),
        }
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"damaged attribute: {error!r}", where=where) from None
