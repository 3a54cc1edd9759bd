"""Coarse pictures of arrays from the first bytes of their streams, with stated errors.

The codec `interpolation` stores coarse levels first. A stream that it wrote with `progressive`
states the errors of some lengths of its beginning (`stages`), so that a reader of a part knows how
far the picture is from the original.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np

from scitoolkit.compression.container import read_header, unpack_part
from scitoolkit.compression.decoding import contradictions_named, decode_part, decompress
from scitoolkit.compression.stages import stated_stages
from scitoolkit.core.errors import ConfigError, DataError

WITHOUT_PICTURE = ("constant", "lossless")
"""Codecs whose streams are decoded whole; one of a progressive stream has empty `stages`."""


@dataclass(frozen=True)
class Preview:
    """A coarse picture of an array.

    Attributes:
        values: of the original's shape and dtype.
        num_bytes: bytes of the stream that were decoded.
        max_error: largest |x - x'| of the points that are not missing, in the array's unit.
        rmse: square root of their mean square error, in the array's unit; for a whole stream the
            largest error, and for slabs the largest of a slab, which bound it.
    """

    values: np.ndarray
    num_bytes: int
    max_error: float
    rmse: float


def preview(stream: bytes | memoryview, share: float = 1.0) -> Preview:
    """Return a coarse picture of an array from the first bytes of its progressive stream.

    Args:
        stream: the first bytes of a stream of `compress` with the codec
            `Interpolation(progressive=True)`, or all of it. Of a memory map only the bytes used
            are read. Arrays compressed in slabs need all of it.
        share: of the bytes of the whole stream to use at most, 0 to 1. An array, or a slab of one,
            that is constant or stored losslessly (all of it missing, or a bound below the precision
            of its type) has no coarse picture: it is decoded whole, exactly, from all of its bytes.

    Raises:
        ConfigError: `share` is not in (0, 1].
        DataError: the stream is damaged, not progressive, or the bytes are too few; the message
            says how many are needed.

    Example:
        >>> from scitoolkit.compression import compress
        >>> wave = np.sin(np.linspace(0, 9, 40))
        >>> x = wave[:, None, None] * wave[:, None] + wave
        >>> x += np.random.default_rng(0).normal(0, 1e-2, x.shape)
        >>> stream = compress(x, abs=1e-3, codec={"name": "interpolation", "progressive": True})
        >>> coarse = preview(stream[: len(stream) // 10])
        >>> bool(np.abs(coarse.values - x).max() <= coarse.max_error), coarse.rmse < 0.1
        (True, True)
    """
    if not 0 < share <= 1:
        raise ConfigError(f"a share of {share!r}", allowed="above 0, up to 1")
    with contradictions_named():
        return _preview(memoryview(stream).cast("B"), share)


def _preview(stream: memoryview, share: float) -> Preview:
    try:
        header, sections, places = unpack_part(stream)
    except DataError as error:
        if "header is truncated" not in str(error):
            raise
        what = f"{len(stream)} bytes are too few for a picture: the header is truncated"
        raise DataError(what, allowed="more of the first bytes of the stream") from None
    total = max(end for _, end in places.values())
    if "slabs" in header:
        if len(stream) < total:
            raise DataError(
                f"{len(stream)} bytes of a stream of {len(sections)} slabs",
                allowed=f"all {total} bytes, of which a share is read",
                fix="np.memmap(FILE, np.uint8).data and share=0.1",
            )
        slabs = [(data, read_header(data)) for data in sections.values()]
        progressive = any("stages" in about for _, about in slabs)
        return _joined(
            header,
            [
                # Slabs without a picture in a progressive stream: all missing, constant, tiny.
                _preview(data, 1.0 if progressive and not about.get("stages") else share)
                for data, about in slabs
            ],
        )
    limit = min(len(stream), int(share * total))
    if header["base"]["name"] in WITHOUT_PICTURE and (
        "stages" in header or header["base"]["name"] == "constant"
    ):
        limit = total if len(stream) >= total else limit
    if limit == total:
        return Preview(decompress(stream), total, header["max_error"], header["max_error"])
    if "stages" not in header:
        raise DataError(
            "the stream states no errors of its first bytes",
            fix="scitoolkit compress --progressive, or codec=Interpolation(progressive=True)",
        )
    begin, stages = places["base"][0], stated_stages(header["stages"])
    within = [stage for stage in stages if begin + stage.num_bytes <= limit]
    if not within:
        least = begin + stages[0].num_bytes if stages else total
        raise DataError(
            f"{limit} of {total} bytes are too few for a picture", allowed=f"{least} bytes or more"
        )
    stage = within[-1]
    data = sections["base"][: stage.num_bytes]
    if zlib.crc32(data) != stage.crc:
        raise DataError("damaged stream: checksum of its first bytes does not match")
    values = decode_part(header, sections, data)
    return Preview(values, begin + stage.num_bytes, stage.max_error, stage.rmse)


def _joined(header: dict[str, Any], parts: list[Preview]) -> Preview:
    """Return the picture of an array from those of its slabs."""
    join = np.ma.concatenate if "masked" in header else np.concatenate
    values = join([part.values for part in parts])
    if list(values.shape) != header["shape"]:
        raise DataError("damaged stream: slabs are missing")
    return Preview(
        values,
        sum(part.num_bytes for part in parts),
        max(part.max_error for part in parts),
        # How many points of a slab are missing is not stated: no mean is taken over slabs.
        max(part.rmse for part in parts),
    )
