"""Windows of a campaign as samples for the planned loader, with one array per channel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.io.campaign.campaign import Campaign
from scitoolkit.io.campaign.masking import hide
from scitoolkit.io.campaign.rows import Rows
from scitoolkit.io.loader.file_source import FileSource, Key, Piece
from scitoolkit.io.loader.source import require_finite

NAN_FIX = (
    "fill them, or remove the simulation; data.mask=missing of an emulation ignores cells without "
    "values"
)


class CampaignWindows(FileSource):
    """Source of windows; samples have each channel as (B, offsets, *dims).

    Args:
        campaign: the campaign.
        sets: rows of its arrays, see `row_sets`.
        starts: (windows,) first row of each window.
        offsets: rows of a window relative to its start, ascending.
        orders: {channel: its dims in another order}; as stored by default.
        dtype: of the arrays; as stored by default.
        lines: {channel: (factor, offset)} that converts its unit into that of a training.
        reversed_dims: dims that are read from their end.
    """

    def __init__(
        self,
        campaign: Campaign,
        sets: Mapping[str, Rows],
        starts: np.ndarray,
        offsets: Sequence[int],
        *,
        orders: Mapping[str, Sequence[str]] | None = None,
        dtype: type[np.floating] | None = None,
        lines: Mapping[str, tuple[float, float]] | None = None,
        reversed_dims: Sequence[str] = (),
    ) -> None:
        frames = tuple(int(o) for o in offsets)
        keys = {path: Key((path,), frames, windowed=True) for path in sets}
        super().__init__(sets, keys, starts, allow_nan=campaign.mask is not None)
        self.campaign: Campaign = campaign
        self.sets: Mapping[str, Rows] = sets
        self.offsets: tuple[int, ...] = frames
        self.dtype: type[np.floating] | None = dtype
        self.lines: Mapping[str, tuple[float, float]] = lines or {}
        self.reversed_dims: frozenset[str] = frozenset(reversed_dims)
        self.orders: dict[str, list[int]] = {
            name: [channel.dims.index(d) for d in (orders or {}).get(name, channel.dims)]
            for name, channel in campaign.channels.items()
        }

    def select(self, samples: Sequence[int] | np.ndarray | slice) -> CampaignWindows:
        """Return a source of a subset of the windows, which shares the files."""
        # Without `__init__`, which would open what both share.
        other = object.__new__(type(self))
        other.__dict__.update(self.__dict__)
        other.starts = self.starts[samples if isinstance(samples, slice) else np.asarray(samples)]
        return other

    @cached_property
    def _channels(self) -> list[tuple[str, str]]:
        return [(c.name, p) for p, channels in self.campaign.arrays.items() for c in channels]

    def assemble(self, values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Return the channels of a batch, (samples, offsets, *dims) each."""
        batch = {}
        for name, path in self._channels:
            part = self.sets[path].channel(values[path], self.campaign.channels[name])
            part = part.transpose(0, 1, *(2 + i for i in self.orders[name]))
            if self.reversed_dims:
                dims = [self.campaign.channels[name].dims[i] for i in self.orders[name]]
                steps = [slice(None, None, -1 if d in self.reversed_dims else 1) for d in dims]
                part = part[(slice(None), slice(None), *steps)]
            if name in self.lines:
                factor, offset = self.lines[name]
                # In float64: an offset such as 273.15 would cost float32 its last digits.
                part = part.astype(np.float64) * factor + offset
            batch[name] = np.ascontiguousarray(part, dtype=self.dtype)
        return {name: batch[name] for name in self.campaign.channels}

    def read_pieces(self, name: str, pieces: Sequence[Piece]) -> np.ndarray:
        """Return the required rows of pieces of a variable in order, 0 in masked cells.

        Raises:
            DataError: rows cannot be read, have NaN or Inf, or another mask.
        """
        out = super().read_pieces(name, pieces)
        if self.campaign.mask is not None:
            numbers = np.concatenate([piece.rows for piece in pieces])
            hide(self.campaign, self.sets[name], name, out, numbers)
        return out

    def refuse_non_finite(self, values: np.ndarray, name: str, rows: np.ndarray) -> None:
        """Raise DataError with the simulation of the first row that is not finite."""
        try:
            require_finite(values, name, rows, "samples")
        except DataError as error:
            bad = ~np.isfinite(values).reshape(len(values), -1).all(axis=1)
            where = self.campaign.where(int(rows[np.argmax(bad)]))
            raise DataError(error.what, where=f"{where}, variable {name}", fix=NAN_FIX) from None
