"""Measurement of the moments of a campaign by pieces, distributed over ranks and cacheable.

A piece is the part of one segment that belongs to the training part. Its moments depend only on
its file (and on the rows just before it), so only pieces of changed files are measured again. All
pieces are merged in the order of the index, so that results are bit-identical for any number of
ranks.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from scitoolkit.core.data_differences import SPACINGS
from scitoolkit.core.errors import DataError
from scitoolkit.io.campaign.campaign import Campaign
from scitoolkit.io.campaign.channels import Channel
from scitoolkit.io.campaign.masking import require_mask
from scitoolkit.io.campaign.rows import Rows
from scitoolkit.io.campaign.statistics import Moments, mark_in
from scitoolkit.io.campaign.windows import NAN_FIX
from scitoolkit.io.missing_attributes import LIMITS

BLOCK_BYTES = 64 * 2**20
SUSPECT_FIX = "mark them in the file, leave them out, or data.allow_suspect=true"
_VERSION = 4
"""Increment when the same file gives other values, to invalidate cached moments."""
_LARGEST = float(np.finfo(np.float32).max)
_VALID = 0.5


@dataclass(frozen=True)
class Question:
    """Moments to measure.

    Attributes:
        lead: rows from input to output.
        changes: channels whose change over `lead` rows is measured too.
        vectors: channels that are measured value by value instead of as fields.
        allow_suspect: accept values that look like fill values, and rows that were never written.
        valid: channel that is 1 where `masked` channels of the same grid count, else 0.
        masked: channels of which other cells are left out.
    """

    lead: int = 1
    changes: tuple[str, ...] = ()
    vectors: tuple[str, ...] = ()
    allow_suspect: bool = False
    valid: str = ""
    masked: tuple[str, ...] = ()


@dataclass(frozen=True)
class SegmentRows:
    """Rows of one segment.

    Attributes:
        segment: number of the segment.
        first: first row, numbered in the campaign.
        last: last row + 1.
        begin: first row of the piece's block, which changes can refer back to.
    """

    segment: int
    first: int
    last: int
    begin: int


@dataclass
class Measured:
    """Moments of a piece.

    Attributes:
        zeros: number of rows at its end in which all time-dependent values are 0.
        values: {channel: its moments}.
        changes: {channel: moments of its change}.
    """

    zeros: int = 0
    values: dict[str, Moments] = field(default_factory=dict)
    changes: dict[str, Moments] = field(default_factory=dict)


def pieces_of(campaign: Campaign, blocks: Sequence[range]) -> list[SegmentRows]:
    """Split ranges of rows at the ends of segments, in order."""
    bounds, parts = campaign.index.rows, []
    for block in blocks:
        for part in campaign.index.within_simulations(block):
            first = int(np.searchsorted(bounds, part.start, side="right")) - 1
            for segment in range(first, len(bounds) - 1):
                low, high = int(bounds[segment]), int(bounds[segment + 1])
                if low >= part.stop:
                    break
                parts.append(
                    SegmentRows(segment, max(low, part.start), min(high, part.stop), part.start)
                )
    return parts


def split_hash(campaign: Campaign, blocks: Sequence[range]) -> str:
    """Return a hash of the rows of the training part."""
    rows = [
        [
            campaign.labels[int(campaign.index.simulation_of(np.array([b.start]))[0])],
            *(int(r) for r in (b.start, b.stop)),
        ]
        for b in blocks
        if len(b)
    ]
    return hashlib.sha256(json.dumps(rows).encode()).hexdigest()[:16]


def keys_of(campaign: Campaign, pieces: Sequence[SegmentRows], question: Question) -> list[str]:
    """Return a hash of the inputs of each piece's moments; "" for pieces that are not cacheable."""
    segments, bounds = campaign.segments, campaign.index.rows
    arrays = {
        p: [list(c.components) for c in channels]
        for p, channels in campaign.arrays.items()
        if p not in campaign.unstored
    }
    mask = "" if campaign.mask is None else campaign.mask.digest
    first = [campaign.arrays[p][0].array for p in arrays]
    changed = [(a.centring, a.offset) if a.offset else a.centring for a in first]
    common = repr([_VERSION, arrays, question, campaign.options.dims, mask, changed])
    virtual = {p: segments.stored(0, p).virtual for p in arrays}
    if any(virtual.values()):
        return [""] * len(pieces)  # changes of the files behind virtual datasets are not detected
    keys = []
    for piece in pieces:
        # Changes of the first rows refer to rows before the piece, whose files are inputs as well.
        before, row = [], piece.first
        while row > max(piece.begin, piece.first - question.lead):
            segment = int(np.searchsorted(bounds, row - 1, side="right")) - 1
            before.append(segments.state(segment))
            row = int(bounds[segment])
        start = int(bounds[piece.segment])
        place = segments.groups[segments.group[piece.segment]], int(segments.member[piece.segment])
        of_file = start - int(segments.begin[piece.segment])
        rows = (
            piece.first - of_file,
            piece.last - of_file,
            piece.first - piece.begin if before else 0,
        )
        turns = segments.turns.get(piece.segment, [])
        simulation = campaign.index.simulation[piece.segment]
        parameters = [(n, float(v[simulation])) for n, v in campaign.parameters.items()]
        lines = (v[start : piece.last].tobytes() for v in campaign.row_values.values())
        digests = [hashlib.sha256(line).hexdigest() for line in lines]
        state = segments.state(piece.segment)
        text = repr([common, state, *place, *rows, before, turns, parameters, *digests])
        keys.append(hashlib.sha256(text.encode()).hexdigest())
    return keys


def measure_pieces(
    campaign: Campaign,
    sets: Mapping[str, Rows],
    pieces: Mapping[int, SegmentRows],
    question: Question,
    *,
    share: tuple[int, int] = (0, 1),
) -> dict[int, Measured]:
    """Measure this rank's share of pieces, reading each row once.

    Args:
        campaign: the campaign.
        sets: its rows.
        pieces: by number.
        question: moments to measure.
        share: this rank and the number of ranks; simulations are distributed over ranks.

    Raises:
        DataError: values that are not finite, or look like unflagged fill values.
    """
    moments: dict[int, Measured] = {}
    reading = _Measuring(campaign, sets, question)
    chains: dict[int, int] = {}
    for bundle in _bundles(campaign, sets, pieces):
        simulation = int(campaign.index.simulation[pieces[bundle[0]].segment])
        if chains.setdefault(simulation, len(chains)) % share[1] == share[0]:
            measured = reading.bundle([pieces[n] for n in bundle])
            moments |= dict(zip(bundle, measured, strict=True))
    return moments


def _bundles(
    campaign: Campaign, sets: Mapping[str, Rows], pieces: Mapping[int, SegmentRows]
) -> list[list[int]]:
    """Group pieces in common chunks: the same rows of neighbouring simulations."""
    segments, bounds = campaign.segments, campaign.index.rows
    # A chunk that holds several members is decompressed once for all of them.
    together = max(rows.members_together for rows in sets.values())
    bundles: dict[tuple[int, ...], list[int]] = {}
    for number, piece in pieces.items():
        k, start = piece.segment, int(bounds[piece.segment])
        member = int(segments.member[k])
        key = (
            int(segments.file[k]),
            int(segments.group[k]),
            piece.first - start,
            piece.last - start,
            member // together if member >= 0 else -1,
        )
        alone = (number,) if together == 1 else ()
        bundles.setdefault((*key, *alone), []).append(number)
    return list(bundles.values())


class _Measuring:
    """Measurement in blocks of rows; caches the last rows of a simulation for the next piece."""

    def __init__(self, campaign: Campaign, sets: Mapping[str, Rows], question: Question) -> None:
        self.campaign, self.sets, self.question = campaign, sets, question
        frame = sum(4 * math.prod(c.shape) for c in campaign.channels.values())
        self.rows = max(question.lead + 1, BLOCK_BYTES // max(frame, 1))
        self.unit = max(int(rows.unit_rows.max()) for rows in sets.values())
        timed = any(rows.axis is not None for rows in sets.values())
        # If no array has a time axis, each file is one sample and no array is static.
        self.moving = {p: rows for p, rows in sets.items() if rows.axis is not None or not timed}
        self.tails: dict[int, tuple[int, dict[str, np.ndarray]]] = {}

    def bundle(self, pieces: Sequence[SegmentRows]) -> list[Measured]:
        """Return the moments of pieces that are the same rows of one file."""
        moments = [Measured() for _ in pieces]
        # Changes reach `lead` rows back into the piece before.
        tails = [self._tail(piece) for piece in pieces]
        start = int(self.campaign.index.rows[pieces[0].segment])
        low, high = pieces[0].first - start, pieces[0].last - start
        for first, last in self._blocks(low, high, len(pieces)):
            for i, frames in enumerate(self._read([p.segment for p in pieces], first, last)):
                row = int(self.campaign.index.rows[pieces[i].segment]) + first
                tails[i] = self._add(moments[i], frames, tails[i], row)
        for piece, measured, tail in zip(pieces, moments, tails, strict=True):
            self._add_static(measured, piece)
            self.tails[self._simulation(piece)] = (piece.last, tail)
        return moments

    def _simulation(self, piece: SegmentRows) -> int:
        return int(self.campaign.index.simulation[piece.segment])

    def _blocks(self, low: int, high: int, members: int) -> Iterator[tuple[int, int]]:
        """Yield ranges of rows of a file, aligned to chunks."""
        size = max(self.rows // members, 1)
        if self.unit > 1:
            size = max(size // self.unit, 1) * self.unit
        while low < high:
            stop = low + size
            # Ends on a chunk, so that the next block does not decompress it again.
            stop = min(stop - stop % self.unit if stop % self.unit else stop, high)
            stop = stop if stop > low else min(low + size, high)
            yield low, stop
            low = stop

    def _read(
        self, segments: Sequence[int], first: int, last: int
    ) -> Iterator[dict[str, np.ndarray]]:
        """Yield the time-dependent channels of each simulation, (rows, ...) float64."""
        read = {path: rows.members(segments, first, last) for path, rows in self.moving.items()}
        for i, segment in enumerate(segments):
            row = int(self.campaign.index.rows[segment]) + first
            yield {
                c.name: self._cells(self.sets[path].channel(values[i], c), c, row)
                for path, values in read.items()
                for c in self.campaign.arrays[path]
            }

    def _cells(self, values: np.ndarray, channel: Channel, row: int) -> np.ndarray:
        """Return the values of rows, (rows, *dims), or (rows, valid cells) with a mask."""
        if self.campaign.mask is not None:
            numbers = np.arange(row, row + len(values))
            valid = require_mask(self.campaign, values, channel, numbers)
            values = values if valid is None else values[:, valid]
        return self._finite(values, channel.name, row)

    def _finite(self, values: np.ndarray, name: str, row: int) -> np.ndarray:
        stored, values = values, values.astype(np.float64, copy=False)
        # The network receives float32, in which larger values are infinite; NaN fails as well.
        good = (np.abs(values) <= _LARGEST).reshape(len(values), -1)
        if not good.all():
            at = int(np.argmin(good.all(axis=1)))
            path = self.campaign.channels[name].array.path
            stated = self.campaign.segments.header(0).variables[path].attrs
            limits = [f"{key} {stated[key]}" for key in LIMITS if key in stated]
            raise DataError(
                f"{int((~good[at]).sum())} values are NaN or Inf in float32"
                + (f", or outside {', '.join(limits)}, as the file says" if limits else ""),
                where=f"{self.campaign.where(row + at)}, variable {name}",
                fix=NAN_FIX,
            )
        self._refuse_lost_changes(stored, name, row)
        return values

    def _refuse_lost_changes(self, values: np.ndarray, name: str, row: int) -> None:
        """Refuse values, float64 or integers, whose changes from row to row float32 loses."""
        path = self.campaign.channels[name].array.path
        kind = self.sets[path].dtype
        if np.can_cast(kind, np.complex64) or len(values) < 2:
            return
        values = values.astype(np.float64, copy=False)
        change = float(np.sqrt(np.mean(np.square(np.diff(values, axis=0)))))
        spacing = float(np.spacing(np.float32(np.abs(values).max())))
        if not 0 < change < SPACINGS * spacing:
            return
        raise DataError(
            f"a typical change of {change:.3g} from row to row at values near "
            f"{float(np.abs(values).max()):.6g}, whose float32 spacing is {spacing:.3g}",
            where=f"{self.campaign.where(row)}, variable {name}",
            allowed=f"changes of at least {SPACINGS} float32 spacings",
            fix=f"subtract the mean of {name} in the precision of the file: data.offsets="
            f"{{{name}: {values.mean():.9g}}} of an emulation",
        )

    def _add(
        self,
        measured: Measured,
        frames: Mapping[str, np.ndarray],
        tail: dict[str, np.ndarray],
        row: int,
    ) -> dict[str, np.ndarray]:
        """Add a block of rows to the moments; return its last rows."""
        question, lead = self.question, self.question.lead
        if not frames:
            return {}
        nonzero = np.zeros(len(next(iter(frames.values()))), bool)
        last_rows, series = {}, {}
        for name, values in frames.items():
            per_field = name not in question.vectors
            counted = values
            if name in question.masked:
                counted = values[self._valid(frames[question.valid], name)]
            if counted.size:
                measured.values.setdefault(name, Moments()).add(counted, per_field)
            if not question.allow_suspect:
                self._refuse_fills(counted, name, row)
            nonzero |= values.reshape(len(values), -1).any(axis=1)
            if lead and name in (*question.changes, question.valid):
                series[name] = np.concatenate([tail[name], values]) if name in tail else values
                last_rows[name] = series[name][-lead:].copy()
        for name in question.changes if lead else ():
            if name in series and len(series[name]) > lead:
                change = series[name][lead:] - series[name][:-lead]
                if name in question.masked:
                    counts = self._valid(series[question.valid], name)
                    change = change[counts[lead:] & counts[:-lead]]
                if change.size:
                    measured.changes.setdefault(name, Moments()).add(
                        change, name not in question.vectors
                    )
        ahead = np.flatnonzero(nonzero)
        zeros = len(nonzero) - 1 - int(ahead[-1]) if len(ahead) else len(nonzero)
        measured.zeros = zeros if len(ahead) else measured.zeros + zeros
        return last_rows

    def _valid(self, mask: np.ndarray, name: str) -> np.ndarray:
        """Return the cells of the mask, (rows, *dims) in the order of a channel."""
        own, dims = (self.campaign.channels[n].dims for n in (self.question.valid, name))
        order = [0, *(1 + own.index(d) for d in dims)]
        cells: np.ndarray = mask.transpose(order) > _VALID
        return cells

    def _add_static(self, measured: Measured, piece: SegmentRows) -> None:
        """Add static arrays, weighted by the number of rows."""
        for path, rows in self.sets.items():
            if path in self.moving:
                continue
            read = rows.members([piece.segment], 0, 1)[0]
            for channel in self.campaign.arrays[path]:
                one = Moments()
                values = self._cells(rows.channel(read, channel), channel, piece.first)
                one.add(values, channel.name not in self.question.vectors)
                measured.values[channel.name] = one.repeated(piece.last - piece.first)

    def _tail(self, piece: SegmentRows) -> dict[str, np.ndarray]:
        """Return the rows of the same block just before a piece."""
        first = max(piece.begin, piece.first - self.question.lead)
        names = self.question.changes
        if first == piece.first or not names:
            return {}
        names = (*names, self.question.valid) if self.question.valid else names
        end, tail = self.tails.get(self._simulation(piece), (-1, {}))
        if end == piece.first:
            return tail
        bounds, parts = self.campaign.index.rows, list[dict[str, np.ndarray]]()
        while first < piece.first:
            segment = int(np.searchsorted(bounds, first, side="right")) - 1
            start, last = int(bounds[segment]), min(piece.first, int(bounds[segment + 1]))
            parts += self._read([segment], first - start, last - start)
            first = last
        return {name: np.concatenate([part[name] for part in parts]) for name in names}

    def _refuse_fills(self, values: np.ndarray, name: str, first: int) -> None:
        if (mark := mark_in(values)) is not None:
            row = first + int(np.argmax((values == mark[0]).reshape(len(values), -1).any(axis=1)))
            where = f"{self.campaign.where(row)}, variable {name}"
            raise DataError(mark[1], where=where, fix=SUSPECT_FIX)


def merged(
    campaign: Campaign, pieces: Sequence[SegmentRows], rows: Sequence[Measured], question: Question
) -> Measured:
    """Merge the moments of all pieces in order.

    Raises:
        DataError: a simulation ends with rows of zeros.
    """
    out, zeros, begin = Measured(), 0, -1
    for i, (piece, row) in enumerate(zip(pieces, rows, strict=True)):
        # A piece of zeros only continues the run of the one before it.
        zeros = row.zeros + (zeros if row.zeros == piece.last - piece.first else 0)
        begin = piece.begin
        ends = i + 1 == len(pieces) or pieces[i + 1].begin != begin
        if ends and 0 < zeros < piece.last - begin and not question.allow_suspect:
            raise DataError(
                f"every value is 0 from here to the end ({zeros} rows): possibly allocated and "
                "never written",
                where=campaign.where(piece.last - zeros),
                fix=SUSPECT_FIX,
            )
        zeros = 0 if ends else zeros
        for into, by_name in ((out.values, row.values), (out.changes, row.changes)):
            for name, moments in by_name.items():
                into[name] = into[name].merge(moments) if name in into else moments
    return out
