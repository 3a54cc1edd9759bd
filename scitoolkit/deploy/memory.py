"""Memory planning: buffers with disjoint lifetimes share bytes of one workspace."""

from __future__ import annotations

from collections.abc import Sequence

from scitoolkit.deploy.builder import ALIGN, Builder
from scitoolkit.deploy.values import Buffer

BYTES = {"float32": 4, "int16": 2, "int8": 1}
"""Size of an element in bytes, unless it is 8."""


def plan(builder: Builder) -> tuple[dict[Buffer, int], int]:
    """Return the byte offset of each workspace buffer in use, and the size of the workspace.

    Buffers are placed in order of decreasing size at the lowest offset that is free during their
    lifetime.
    """
    spans = _spans(builder.statements)
    placed: list[tuple[int, int, int, int]] = []
    out: dict[Buffer, int] = {}
    for buffer in sorted(spans, key=lambda b: -_bytes(b)):
        first, last = spans[buffer]
        size, offset = _bytes(buffer), 0
        for other_first, other_last, start, stop in sorted(placed, key=lambda p: p[2]):
            if other_last >= first and other_first <= last and start < offset + size:
                offset = max(offset, stop)
        placed.append((first, last, offset, offset + size))
        out[buffer] = offset
    return out, max((stop for *_, stop in placed), default=0)


def _spans(statements: Sequence[tuple[str, set[Buffer]]]) -> dict[Buffer, tuple[int, int]]:
    """Return the lifetime of each workspace buffer: the first and last statement that uses it."""
    spans: dict[Buffer, tuple[int, int]] = {}
    for place, (_, touched) in enumerate(statements):
        # Sorted, as the order of a set varies and equal networks must give equal code.
        for buffer in sorted(touched, key=lambda b: b.name):
            if buffer.kind == "workspace":
                spans[buffer] = (spans.get(buffer, (place, place))[0], place)
    return spans


def _bytes(buffer: Buffer) -> int:
    size = buffer.size * BYTES.get(buffer.dtype, 8)
    return -(-size // ALIGN) * ALIGN
