"""Selection of codec, bound factor and enhancer by measuring candidates on the field.

Candidates differ in size and quality, so they are compared at equal size: the value of a candidate
is its PSNR minus the PSNR that its additional bytes would gain through a tighter bound. This
exchange rate (dB per doubling of the size) is measured on the field.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from logging import Logger
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from scitoolkit.compression import field
from scitoolkit.compression.codecs import ErrorBoundedCodec, codecs
from scitoolkit.compression.codecs.interpolation import Interpolation
from scitoolkit.compression.enhancers import Enhancer, enhancers
from scitoolkit.compression.field import Encoded, codec_of
from scitoolkit.core.config import Config
from scitoolkit.core.errors import BackendError, ConfigError
from scitoolkit.core.log import get_logger
from scitoolkit.core.plugins import Choice

log: Logger = get_logger(__name__)
# Bytes of header and section table of any stream; they matter for tiny fields only.
OVERHEAD = 100
DEFAULT_EXCHANGE = 7.0
# Drop candidates more than 1.4x the smallest: users of an error bound want small files.
MAX_GROWTH = 1.4
# For fields of more points than SAMPLED_FROM the codec is chosen on blocks of SAMPLED_POINTS.
SAMPLED_FROM, SAMPLED_POINTS, SAMPLES = 1 << 20, 3 << 15, 4
# Codecs whose bytes for the blocks differ by at most this fraction are compared on the field. An
# adaptive codec takes up to 11 % less in a large field than in blocks, relative to others.
TIE, ADAPTIVE_TIE = 0.01, 0.12
# In streams below TINY_STREAM bytes, tables and settings dominate and a tighter bound is cheap.
TINY_STREAM, TIGHTER = 1 << 10, (1.0, 0.7, 0.5)


class Options(Config):
    """Codec, enhancer and objective of a compression; `auto` is decided by measurement.

    Attributes:
        codec: `auto` tries every installed codec that is `automatic`; a name or
            `{name: ..., setting: ...}` fixes one.
        enhancer: `auto`, `none`, or the enhancer to apply after the codec.
        guarantee: `strict` keeps the bound at every point; `relaxed` allows errors of up to twice
            the bound after an enhancer.
        train_seconds: training time (s) of trained enhancers; 0 excludes them from `auto`.
        objective: `size` writes the smallest stream that keeps the bound, `quality` the stream
            with the highest PSNR for its size, up to 1.4 times the smallest, `speed` the stream of
            a fast codec, without an enhancer unless one is named. A PSNR bound always uses
            `quality`.

    Example:
        >>> Options(codec="sz3", guarantee="relaxed").codec
        Sz3(name='sz3')
    """

    codec: Annotated[ErrorBoundedCodec | Literal["auto"], Choice(codecs, ("auto",))] = "auto"
    enhancer: Annotated[Enhancer | Literal["auto", "none"], Choice(enhancers, ("auto", "none"))] = (
        "auto"
    )
    guarantee: Literal["strict", "relaxed"] = "strict"
    train_seconds: float = Field(default=0.0, ge=0)
    objective: Literal["size", "quality", "speed"] = "size"

    @property
    def progressive(self) -> bool:
        """Whether a coarse picture can be decoded from the first bytes of a stream."""
        return isinstance(self.codec, Interpolation) and self.codec.progressive

    def tried_codecs(self) -> list[ErrorBoundedCodec]:
        """Return the codecs to try on a field, with their settings."""
        if not isinstance(self.codec, str):
            return [self.codec]
        members = map(codecs.get, codecs)
        if self.objective == "speed":
            return [member() for member in members if member.fast]
        quality = self.objective == "quality"
        return [
            member()
            for member in members
            if member.automatic and not (quality and member.fills_bound)
        ]

    def tried_when_tiny(self) -> list[ErrorBoundedCodec]:
        """Return the codecs that `objective: quality` tries for tiny streams only."""
        members = [] if self.codec != "auto" else [codecs.get(name) for name in codecs]
        return [member() for member in members if member.automatic and member.fills_bound]

    def tried_enhancers(self) -> list[Enhancer]:
        """Return the enhancers to try: all closed-form ones, and trained ones if requested."""
        if self.enhancer == "none":
            return []
        members = {name: enhancers.get(name)() for name in enhancers}
        if not isinstance(self.enhancer, str):
            members[self.enhancer.name] = self.enhancer
        wanted = [e for e in members.values() if self._wants(e) and not e.unavailable()]
        return sorted(wanted, key=lambda e: e.trained)

    def _wants(self, enhancer: Enhancer) -> bool:
        if not enhancer.trained:
            return True
        return enhancer == self.enhancer or (self.enhancer == "auto" and self.train_seconds > 0)


class CandidateSelection:
    """Candidates with their measured PSNR, ranked by value at equal size.

    Args:
        values: the field.
        objective: `size` ranks candidates by size alone.
    """

    rate: float

    def __init__(self, values: np.ndarray, objective: str = "quality") -> None:
        self.values, self.objective = values, objective
        self.extent: float = float(values.max()) - float(values.min())
        self.rate = DEFAULT_EXCHANGE
        self.candidates: list[tuple[Encoded, float]] = []

    def add(self, encoded: Encoded | None) -> None:
        """Measure and add a candidate; None (a candidate that cannot keep the bound) is skipped."""
        if encoded is not None:
            self.candidates.append((encoded, self._psnr(encoded.decoded)))

    def by_value(self) -> list[Encoded]:
        """Return candidates near the smallest size, the most valuable first."""
        if self.objective == "size":
            return [e for e, _ in sorted(self.candidates, key=lambda e: e[0].num_bytes)]
        least = min((e.num_bytes for e, _ in self.candidates), default=0) + OVERHEAD
        near = [e for e in self.candidates if e[0].num_bytes + OVERHEAD <= MAX_GROWTH * least]
        return [e for e, _ in sorted(near, key=self._value, reverse=True)]

    def keep_enhanced(self, options: Options) -> None:
        """Drop candidates without an enhancer if a closed-form enhancer was requested by name."""
        if isinstance(options.enhancer, Enhancer) and not options.enhancer.trained:
            enhanced = [e for e in self.candidates if "enhancer" in e[0].header]
            self.candidates = enhanced or self.candidates

    def measure_rate(self) -> None:
        """Measure dB per doubling of the size from two candidates of a monotone codec."""
        pair = [e for e in self.candidates if codec_of(e[0]).monotone][:2]
        if len(pair) < 2:
            return
        (one, low), (two, high) = pair
        grown = math.log2((two.num_bytes + OVERHEAD) / (one.num_bytes + OVERHEAD))
        if grown > 0.01 and math.isfinite(high - low):
            # Where both sizes are nearly equal the quotient is noise: it is kept in a plausible
            # range.
            self.rate = min(max((high - low) / grown, 1.0), 60.0)

    def _value(self, candidate: tuple[Encoded, float]) -> float:
        return candidate[1] - self.rate * math.log2(candidate[0].num_bytes + OVERHEAD)

    def _psnr(self, decoded: np.ndarray) -> float:
        total, block = 0.0, 1 << 18
        x, y = self.values.reshape(-1), decoded.reshape(-1)
        for start in range(0, x.size, block):
            error = x[start : start + block].astype(np.float64)
            error -= y[start : start + block]
            total += float(error @ error)
        # A finite number instead of infinity, whose differences would be NaN in `measure_rate`.
        if total == 0 or self.extent == 0:
            return 1000.0
        return 10 * math.log10(self.extent**2 * x.size / total)


def encode_best(values: np.ndarray, bound: float, options: Options) -> Encoded | None:
    """Return the best coded field that keeps the bound at every point (2 bounds if relaxed).

    The result is None if no codec keeps the bound; the field can then be stored losslessly.

    Args:
        values: finite C-contiguous float32 or float64 field, not constant.
        bound: absolute, > 0, between 2^-60 and 2^60 (`field.exponent_of`).
        options: see `Options`.

    Raises:
        BackendError: no codec is available, or the codec was named and failed.
        ConfigError: the codec was named and does not accept the field.
    """
    if options.objective == "speed" and isinstance(options.enhancer, str):
        options = options.model_copy(update={"enhancer": "none"})
    if options.objective != "quality":
        return _smallest(values, bound, options)
    plain = CandidateSelection(values)
    for encoded in _plain(values, bound, options):
        plain.add(encoded)
    if not plain.candidates:
        _refuse_if_untried(values, bound, options)
        return None
    plain.measure_rate()
    if min(encoded.num_bytes for encoded, _ in plain.candidates) < TINY_STREAM:
        for codec in options.tried_when_tiny():
            if not codec.unavailable() and not codec.refusal(values, bound):
                for factor in TIGHTER:
                    plain.add(_attempt(codec, values, bound, factor))
    final = CandidateSelection(values)
    final.rate = plain.rate
    # Corrections and each enhancer cost a pass over the field: only the two best get them.
    leading = plain.by_value()[:2]
    for encoded in leading:
        final.add(_strict(encoded, values, bound))
    return _enhanced_best(final, leading, bound, options)


def _smallest(values: np.ndarray, bound: float, options: Options) -> Encoded | None:
    """Return the smallest coded field that keeps the bound at every point.

    Sizes include corrections: an enhancer pays off only if it saves more bytes of corrections than
    it costs. For a large field the codec is chosen on blocks of it.
    """
    if len(options.tried_codecs()) > 1 and values.size > SAMPLED_FROM:
        coded = [_smallest(values, bound, one) for one in _best_on_sample(values, bound, options)]
        within = [encoded for encoded in coded if encoded is not None]
        return min(within, key=lambda e: e.num_bytes, default=None)
    final, plain = CandidateSelection(values, "size"), list(_plain(values, bound, options))
    if not plain:
        _refuse_if_untried(values, bound, options)
        return None
    # A codec that has measured its error keeps the bound: there is nothing to correct or compare.
    if len(plain) == 1 and plain[0].error is not None and options.enhancer == "none":
        return plain[0]
    for encoded in plain:
        final.add(encoded if encoded.error is not None else _strict(encoded, values, bound))
    least = min((e.num_bytes for e, _ in final.candidates), default=0)
    leading = [e for e in sorted(plain, key=lambda e: e.num_bytes) if _may_gain(e, least, options)]
    return _enhanced_best(final, leading[:2], bound, options)


def _best_on_sample(values: np.ndarray, bound: float, options: Options) -> list[Options]:
    """Return the options with the codec that codes the sample best, and with those as good."""
    totals: dict[str, int] = {}
    tried = {codec.name: codec for codec in options.tried_codecs()}
    for block in sample_blocks(values):
        if float(block.max()) - float(block.min()) <= 2 * bound:
            continue  # any codec stores it in some bytes
        for name, num_bytes in _sizes(block, bound, options):
            totals[name] = totals.get(name, 0) + num_bytes
    least = min(totals.values(), default=0)
    ties = {name: ADAPTIVE_TIE if codec.adaptive else TIE for name, codec in tried.items()}
    near = [name for name, total in totals.items() if total <= (1 + ties[name]) * least]
    return [options.model_copy(update={"codec": tried[name]}) for name in near or tried]


def _sizes(block: np.ndarray, bound: float, options: Options) -> Iterator[tuple[str, int]]:
    """Yield each codec's name and its bytes for a block; a codec that fails stores it raw."""
    for codec in options.tried_codecs():
        if codec.unavailable() or codec.refusal(block, bound):
            continue
        one = options.model_copy(update={"codec": codec})
        try:
            encoded = _smallest(block, bound, one)
        except BackendError:
            encoded = None
        yield codec.name, block.nbytes if encoded is None else encoded.num_bytes


def _enhanced_best(
    final: CandidateSelection, leading: Sequence[Encoded], bound: float, options: Options
) -> Encoded | None:
    """Return the best of the candidates and of `leading` with enhancers applied, if any."""
    for enhancer in options.tried_enhancers() if leading else []:
        for encoded in _enhanced(enhancer, leading, final.values, bound, options):
            final.add(encoded)
    final.keep_enhanced(options)
    if not final.candidates:
        return None
    best = final.by_value()[0]
    log.info("%s", _description(best))
    return best


def _may_gain(encoded: Encoded, least: int, options: Options) -> bool:
    """Return whether an enhancer can reduce the size: all that it can save is corrections."""
    wanted = isinstance(options.enhancer, Enhancer) or options.guarantee == "relaxed"
    return wanted or (not codec_of(encoded).pointwise and encoded.num_bytes < least)


def sample_blocks(values: np.ndarray) -> list[np.ndarray]:
    """Return blocks at quantiles of the range within a block, `SAMPLED_POINTS` points in all.

    Fields may be empty, solid or smooth anywhere, so that no fixed place represents them.
    """
    sides, points = [1] * values.ndim, SAMPLED_POINTS // SAMPLES
    by_extent = sorted(range(values.ndim), key=lambda i: values.shape[i])
    # Short dims first: the points that a short dim leaves unused pass to the longer ones.
    for left, i in zip(range(values.ndim, 0, -1), by_extent, strict=True):
        sides[i] = min(values.shape[i], max(round(points ** (1 / left)), 1))
        points //= sides[i]
    corners = (range(0, n - side + 1, side) for n, side in zip(values.shape, sides, strict=True))
    blocks = [
        values[tuple(slice(i, i + side) for i, side in zip(corner, sides, strict=True))]
        for corner in itertools.product(*corners)
    ]
    order = np.argsort([float(b.max()) - float(b.min()) for b in blocks], kind="stable")
    # The middle of each quarter, from calm to active blocks: a codec that is good on calm regions
    # only must not win.
    quantiles = ((2 * i + 1) * len(blocks) // (2 * SAMPLES) for i in range(SAMPLES))
    return [np.ascontiguousarray(blocks[order[i]]) for i in quantiles]


def middle_block(values: np.ndarray) -> np.ndarray:
    """Return a contiguous block from the middle of a field, of at most `SAMPLED_POINTS` points."""
    return np.ascontiguousarray(values[middle_slices(values.shape)])


def middle_slices(shape: tuple[int, ...]) -> tuple[slice, ...]:
    """Return the slices of `middle_block`."""
    side = int(SAMPLED_POINTS ** (1 / max(sum(n > 1 for n in shape), 1)))
    starts = [max(n - side, 0) // 2 for n in shape]
    return tuple(slice(i, i + side) for i in starts)


def _refuse_if_untried(values: np.ndarray, bound: float, options: Options) -> None:
    """Raise BackendError if no codec accepts the field; codecs that do have failed on it."""
    if all(c.unavailable() or c.refusal(values, bound) for c in options.tried_codecs()):
        raise _no_codec(values, bound, options)


def _no_codec(values: np.ndarray, bound: float, options: Options) -> BackendError:
    reasons = dict.fromkeys(  # codecs of one library have the same reason
        why
        for codec in options.tried_codecs()
        if (why := codec.unavailable() or codec.refusal(values, bound))
    )
    parts = [why.partition(". Fix: ") for why in reasons]
    fixes = [fix for *_, fix in parts if fix]
    return BackendError(
        f"no codec accepts shape {values.shape}. {'. '.join(what for what, *_ in parts)}".strip(),
        fix="; or ".join([*fixes, "pip install 'scitoolkit[compression]'"]),
    )


def _plain(values: np.ndarray, bound: float, options: Options) -> Iterator[Encoded]:
    """Yield the field coded by each codec that accepts it, without an enhancer."""
    fixed = options.codec != "auto"
    for codec in options.tried_codecs():
        if not fixed and codec.unavailable():
            continue
        if why := codec.refusal(values, bound):
            if fixed:
                raise ConfigError(why, allowed="codec='auto'")
            continue
        small = options.objective != "quality"
        for factor in codec.size_factors(values.size) if small else codec.factors(values.size):
            if fixed:
                yield field.encode_base(codec, values, bound, factor)
            elif encoded := _attempt(codec, values, bound, factor):
                yield encoded


def _attempt(
    codec: ErrorBoundedCodec, values: np.ndarray, bound: float, factor: float = 1.0
) -> Encoded | None:
    """Return the field coded by one codec, None if it fails, which is logged."""
    try:
        return field.encode_base(codec, values, bound, factor)
    except BackendError as error:
        log.info("not used: %s", error)
        return None


def _strict(encoded: Encoded, values: np.ndarray, bound: float) -> Encoded | None:
    try:
        return field.with_corrections(encoded, values, bound)
    except (OverflowError, BackendError):
        return None


def _enhanced(
    enhancer: Enhancer,
    leading: Sequence[Encoded],
    values: np.ndarray,
    bound: float,
    options: Options,
) -> Iterator[Encoded | None]:
    """Yield the leading fields with an enhancer, and a pointwise one coded with a margin for it."""
    sizes = enhancer.sizes(values.size)
    seconds = (options.train_seconds or enhancer.default_seconds) / len(sizes)
    for encoded in leading[: enhancer.num_behind]:
        for size in sizes:
            data = enhancer.fit(values, encoded.decoded, bound, size, seconds)
            if data is None:
                continue
            enhanced = field.with_enhancer(encoded, enhancer, data, bound, 1.0)
            relaxed = options.guarantee == "relaxed" and codec_of(encoded).pointwise
            yield enhanced if relaxed else _strict(enhanced, values, bound)
    if codec_of(leading[0]).pointwise and options.guarantee == "strict" and not enhancer.trained:
        margin = _with_margin(enhancer, leading[0], values, bound, options)
        yield None if margin is None else _strict(margin, values, bound)


def _with_margin(
    enhancer: Enhancer,
    leading: Encoded,
    values: np.ndarray,
    bound: float,
    options: Options,
) -> Encoded | None:
    """Return the field coded with a tighter bound, so that the clipped enhancer stays within it."""
    tried = [*options.tried_codecs(), *options.tried_when_tiny()]
    codec = next(c for c in tried if isinstance(c, codec_of(leading)))
    # The codec's error and the clipped correction add: inner + MARGIN inner = (1 - GUARD) bound.
    inner = bound / (1 + field.MARGIN) * (1 - field.GUARD)
    # Native codecs decode with a multiple of the stream's bound, others with a bound in the header.
    tighter = (inner, 1.0) if codec.reference else (bound, inner / bound)
    encoded = _attempt(codec, values, *tighter)
    if encoded is None:
        return None
    data = enhancer.fit(values, encoded.decoded, bound, enhancer.sizes(values.size)[-1], 0.0)
    assert data is not None
    return field.with_enhancer(encoded, enhancer, data, bound, field.MARGIN * inner / bound)


def _description(best: Encoded) -> str:
    name: Any = best.header.get("enhancer", {}).get("name", "no enhancer")
    return f"codec {best.header['base']['name']}, {name}: {best.num_bytes} bytes"
