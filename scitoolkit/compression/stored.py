"""A compressed variable of any container: what it says about itself, and its values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from scitoolkit.compression.compress import decompress, inspect_stream
from scitoolkit.core.errors import DataError


@dataclass(frozen=True)
class Stored:
    """One compressed variable.

    Args:
        name: of the variable when it was compressed.
        about: the entries of a stream's header, `bytes` and `ratio`.
        decode: returns the values.
        stream: its stream; None where chunks were coded one by one.
    """

    name: str
    about: Mapping[str, Any]
    decode: Callable[[], np.ndarray]
    stream: bytes | None = None

    @classmethod
    def of_stream(cls, name: str, stream: bytes) -> Stored:
        """Return the variable of a stream."""
        return cls(name, inspect_stream(stream), lambda: decompress(stream), stream)


def record(name: str, about: Mapping[str, Any]) -> dict[str, Any]:
    """Return what `compress` reports of a variable.

    Args:
        name: of the variable.
        about: as of `Stored`.
    """
    return {
        "name": name, "shape": about["shape"], "dtype": about["dtype"],
        "codec": about["base"]["name"],
        "enhancer": about.get("enhancer", {}).get("name", "none"),
        "bytes": about["bytes"], "ratio": about["ratio"],
        "error_bound": about.get("error_bound", 0.0), "max_error": about["max_error"],
    }  # fmt: skip


def about_chunks(kept: Any, item: Any, codec: str, stored_bytes: int, where: str) -> dict[str, Any]:
    """Return what a variable coded in chunks says about itself, in the terms of a stream's header.

    Args:
        kept: its attribute, as `chunked.Survey.header` has it, and how the original was stored.
        item: the variable, with `shape` and `dtype`.
        codec: named as the base.
        stored_bytes: of its chunks.
        where: name of the variable, for messages.

    Raises:
        DataError: the attribute is damaged.
    """
    try:
        size = int(np.prod(item.shape)) * item.dtype.itemsize
        mode, value = kept["bound"]["mode"], float(kept["bound"]["value"])
        return {
            **kept, "bound": {"mode": mode, "value": value}, "storage": dict(kept["storage"]),
            "shape": list(item.shape), "dtype": item.dtype.str, "base": {"name": codec},
            "max_error": float(kept["error_bound"]), "bytes": stored_bytes,
            "ratio": size / max(stored_bytes, 1),
        }  # fmt: skip
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"its attribute is damaged: {error!r}", where=where) from None
