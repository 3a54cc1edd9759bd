"""Which base, which split of the bound and which enhancer: whatever measures best on the field.

Candidates differ in size and in quality, so they are compared at equal size: a candidate is worth
its PSNR minus what the same codec would gain by spending as many bytes on a tighter bound. That
exchange rate (dB per doubling of the size) is measured on the field itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from scitoolkit.compression import dyadic, field
from scitoolkit.compression.bases import LIBRARY_BASES
from scitoolkit.compression.field import Encoded
from scitoolkit.core.errors import BackendError, ConfigError
from scitoolkit.core.log import get_logger

log = get_logger(__name__)
# Sizes of SZ3 are not monotone in the bound: a slightly tighter one may well be shorter.
SHARES = {"sz3": (1.0, 0.985, 0.97, 0.955, 0.94, 0.92, 0.9)}
SEARCHED_POINTS = 1 << 21
# A small field is coded in milliseconds, and its header weighs: the search may be finer.
SMALL_POINTS = 1 << 16
FINE_SHARES = tuple(round(1 - 0.01 * i, 2) for i in range(21))
FINE_STEPS = (*field.STEPS, 1.35, 1.2, 1.1, 0.92, 0.85)
BASES = ("auto", field.DYADIC, *LIBRARY_BASES)
ENHANCERS = ("auto", "none", "linear", "network")
BOUNDS = ("strict", "relaxed")
# Bytes of header and table that a stream has in any case; matters for tiny fields alone.
OVERHEAD = 100
DEFAULT_EXCHANGE = 7.0
# Who asks for a bound wants few bytes: better but much larger candidates are out.
MAX_GROWTH = 1.4


@dataclass(frozen=True)
class Options:
    """What the user left open or fixed: base, enhancer, strictness, seconds of training."""

    base: str = "auto"
    enhancer: str = "auto"
    bound: str = "strict"
    seconds: float = 0.0

    def __post_init__(self) -> None:
        """Refuse unknown names."""
        for key, known in (("base", BASES), ("enhancer", ENHANCERS), ("bound", BOUNDS)):
            if getattr(self, key) not in known:
                raise ConfigError(f"{key}={getattr(self, key)!r}", allowed=", ".join(known))


class Contest:
    """Candidates with their measured PSNR; the best is worth most at a common size."""

    def __init__(self, values: np.ndarray) -> None:
        self.values = values
        self.extent = float(values.max()) - float(values.min())
        self.rate = DEFAULT_EXCHANGE
        self.entries: list[tuple[Encoded, float]] = []

    def enter(self, encoded: Encoded | None) -> None:
        """Measure a candidate; None stands for one that cannot keep the bound."""
        if encoded is not None:
            self.entries.append((encoded, self._psnr(encoded.decoded)))

    def ranked(self) -> list[Encoded]:
        """Return candidates near the smallest size, the most worthy first."""
        least = min((e.num_bytes for e, _ in self.entries), default=0) + OVERHEAD
        near = [e for e in self.entries if e[0].num_bytes + OVERHEAD <= MAX_GROWTH * least]
        return [e for e, _ in sorted(near, key=self._worth, reverse=True)]

    def set_rate(self) -> None:
        """Measure dB per doubling of the size from the two step widths of the dyadic codec."""
        pair = [e for e in self.entries if e[0].header["base"]["name"] == field.DYADIC][:2]
        if len(pair) < 2:
            return
        (one, low), (two, high) = pair
        grown = math.log2((two.num_bytes + OVERHEAD) / (one.num_bytes + OVERHEAD))
        if grown > 0.01 and math.isfinite(high - low):
            self.rate = min(max((high - low) / grown, 1.0), 60.0)

    def _worth(self, entry: tuple[Encoded, float]) -> float:
        return entry[1] - self.rate * math.log2(entry[0].num_bytes + OVERHEAD)

    def _psnr(self, decoded: np.ndarray) -> float:
        total, block = 0.0, 1 << 18
        x, y = self.values.reshape(-1), decoded.reshape(-1)
        for start in range(0, x.size, block):
            error = x[start : start + block].astype(np.float64)
            error -= y[start : start + block]
            total += float(error @ error)
        if total == 0:
            return 1000.0
        return 10 * math.log10(self.extent**2 * x.size / total)


def encode_best(values: np.ndarray, bound: float, options: Options) -> Encoded:
    """Return the best coded field whose every point keeps the bound (2 bounds when relaxed).

    Args:
        values: finite C-contiguous float32 or float64 field, not constant.
        bound: absolute, > 0.
        options: see `Options`.

    Raises:
        BackendError: no codec can take the field.
    """
    plain = Contest(values)
    for encoded in _plain(values, bound, options):
        plain.enter(encoded)
    if not plain.entries:
        reasons = [why for name in _bases(options) if (why := _refusal(name, values, bound))]
        raise BackendError(
            f"no base codec can take shape {values.shape}. {'. '.join(reasons)}".strip(),
            fix="pip install 'scitoolkit[compression]'",
        )
    plain.set_rate()
    final = Contest(values)
    final.rate = plain.rate
    leading = plain.ranked()[:2]
    for encoded in leading:
        final.enter(_strict(encoded, values, bound))
    if options.enhancer != "none":
        for found in _linear(leading, values, bound, options):
            final.enter(found)
    if options.enhancer == "network" or (options.enhancer == "auto" and options.seconds > 0):
        for found in _networks(leading, values, bound, options):
            final.enter(found)
    if options.enhancer == "linear":
        final.entries = [e for e in final.entries if "enhancer" in e[0].header] or final.entries
    if not final.entries:
        raise BackendError("no base codec keeps the bound")
    best = final.ranked()[0]
    log.info("%s", _say(best))
    return best


def _plain(values: np.ndarray, bound: float, options: Options) -> Iterator[Encoded]:
    """Yield the field coded by each base that can take it, without enhancer."""
    for name in _bases(options):
        why = _refusal(name, values, bound)
        if why:
            if options.base == name:
                raise ConfigError(why, allowed="base='auto'")
            continue
        for step in _steps(name, values.size):
            try:
                yield field.encode_base(name, values, bound, step)
            except BackendError:
                if options.base == name:
                    raise


def _steps(name: str, num_points: int) -> Sequence[float]:
    """Return the bin widths (own codec) or shares of the bound (a library's) to try."""
    small = num_points <= SMALL_POINTS
    if name == field.DYADIC:
        return FINE_STEPS if small else field.STEPS
    if name not in SHARES or num_points > SEARCHED_POINTS:
        return (1.0,)
    return FINE_SHARES if small else SHARES[name]


def _bases(options: Options) -> list[str]:
    return [field.DYADIC, *LIBRARY_BASES] if options.base == "auto" else [options.base]


def _refusal(name: str, values: np.ndarray, bound: float) -> str:
    if name != field.DYADIC:
        return LIBRARY_BASES[name].refusal(values)
    if dyadic.unavailable():
        return dyadic.unavailable()
    if float(np.abs(values).max()) / bound > dyadic.MAX_STEPS:
        return f"dyadic needs a bound above 1/{dyadic.MAX_STEPS} of the largest value"
    return ""


def _strict(encoded: Encoded, values: np.ndarray, bound: float) -> Encoded | None:
    try:
        return field.with_corrections(encoded, values, bound)
    except (OverflowError, BackendError):
        return None


def _linear(
    leading: list[Encoded], values: np.ndarray, bound: float, options: Options
) -> Iterator[Encoded | None]:
    """Yield linear enhancers behind the two best bases, and with a margin behind a library's."""
    if dyadic.unavailable():
        return
    classes = (1, 4) if values.size < 1 << 18 else (4, 8)
    for encoded in leading:
        for number in classes:
            enhanced = field.with_linear(encoded, values, bound, number, 1.0)
            relaxed = options.bound == "relaxed" and "steps" not in encoded.header["base"]
            yield enhanced if relaxed else _strict(enhanced, values, bound)
    first = leading[0].header["base"]["name"]
    if first != field.DYADIC and options.bound == "strict":
        inner = bound / (1 + field.MARGIN) * (1 - field.GUARD)
        encoded = field.encode_base(first, values, inner, 1.0)
        clip = field.MARGIN * inner / bound
        enhanced = field.with_linear(encoded, values, bound, classes[-1], clip)
        yield _strict(enhanced, values, bound)


def _networks(
    leading: list[Encoded], values: np.ndarray, bound: float, options: Options
) -> Iterator[Encoded | None]:
    """Yield networks behind the best base; whether they gain is measured with all others."""
    from scitoolkit.compression.network import DEFAULT_SECONDS, enhanced_by_network

    seconds = options.seconds or DEFAULT_SECONDS
    for enhanced in enhanced_by_network(leading[0], values, bound, seconds):
        relaxed = options.bound == "relaxed" and "steps" not in enhanced.header["base"]
        yield enhanced if relaxed else _strict(enhanced, values, bound)


def _say(best: Encoded) -> str:
    name = best.header.get("enhancer", {}).get("name", "no enhancer gains on it")
    return f"base {best.header['base']['name']}, {name}: {best.num_bytes} bytes"
