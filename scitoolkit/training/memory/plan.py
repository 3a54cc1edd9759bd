"""Memory plans: save, pack, offload or recompute each part, by dynamic programming.

While the backward pass is at a part, memory holds the bytes stored by this and all earlier parts
and the transient bytes that this part recomputes. The peak is therefore the maximum over parts of
(stored so far + transient), not the sum of all stored bytes and the largest transient.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from scitoolkit.training.memory.parts import MeasuredModule

SAVE, PACK, RECOMPUTE, OFFLOAD = "save", "pack", "recompute", "offload"
RECOMPUTE_PACKED, RECOMPUTE_OFFLOADED = "recompute packed", "recompute offloaded"
RECOMPUTED = frozenset({RECOMPUTE, RECOMPUTE_PACKED, RECOMPUTE_OFFLOADED})
LOSSY = frozenset({PACK, RECOMPUTE_PACKED})
MOVED = frozenset({OFFLOAD, RECOMPUTE_OFFLOADED})
UNITS, CAPS = 128, 12


@dataclass(frozen=True)
class PackingCost:
    """Measured cost of packing, or of offloading (infinite ratio).

    Args:
        ratio: bytes before over bytes after.
        seconds_per_byte: time of a round trip per byte.
    """

    ratio: float
    seconds_per_byte: float


@dataclass(frozen=True)
class MemoryPlan:
    """A choice for each part, and the predicted cost.

    Attributes:
        choices: part name -> choice; "" stands for tensors saved outside of all parts.
        peak: predicted peak of activation bytes.
        seconds: predicted time in addition to that of saving everything.
    """

    choices: Mapping[str, str]
    peak: float
    seconds: float

    @property
    def lossy(self) -> bool:
        """Whether gradients have an error."""
        return not LOSSY.isdisjoint(self.choices.values())

    @property
    def moves(self) -> bool:
        """Whether activations are offloaded."""
        return not MOVED.isdisjoint(self.choices.values())


def options(
    part: MeasuredModule, packing: PackingCost | None = None, offloading: PackingCost | None = None
) -> dict[str, tuple[float, float, float]]:
    """Return for each choice the stored bytes, transient bytes and extra seconds of a part."""
    costs = {
        SAVE: (float(part.saved), 0.0, 0.0),
        RECOMPUTE: (float(part.inputs), float(part.saved), part.seconds),
    }
    for way, again, how in (
        (PACK, RECOMPUTE_PACKED, packing),
        (OFFLOAD, RECOMPUTE_OFFLOADED, offloading),
    ):
        if how is not None:
            per_byte, ratio = how.seconds_per_byte, how.ratio
            costs[way] = (part.saved / ratio, float(part.inputs), per_byte * part.saved)
            costs[again] = (
                part.inputs / ratio,
                float(part.saved + part.inputs),
                part.seconds + per_byte * part.inputs,
            )
    return costs


def uniform(
    parts: Sequence[MeasuredModule],
    choice: str,
    packing: PackingCost | None = None,
    offloading: PackingCost | None = None,
) -> MemoryPlan:
    """Return the plan with the same choice for all parts."""
    stored = peak = seconds = 0.0
    for part in parts:
        stays, transient, extra = options(part, packing, offloading)[choice]
        stored, seconds = stored + stays, seconds + extra
        peak = max(peak, stored + transient)
    named = {part.name: choice for part in parts}
    return MemoryPlan({"": _outside(named.values()), **named}, peak, seconds)


def _outside(choices: Iterable[str]) -> str:
    """Return the choice for tensors outside of all parts."""
    taken = set(choices)
    return PACK if taken & LOSSY else OFFLOAD if taken & MOVED else SAVE


def plans(
    parts: Sequence[MeasuredModule],
    packing: PackingCost | None,
    offloading: PackingCost | None = None,
) -> list[MemoryPlan]:
    """Return the fastest plans under several limits of the peak, smallest peak first.

    Args:
        parts: in execution order.
        packing: measured packing; None if not available.
        offloading: measured offloading; None if not available.

    Example:
        >>> parts = [MeasuredModule(str(i), i, 1, 100, 10, 1.0) for i in range(3)]
        >>> found = plans(parts, None)
        >>> found[0].choices["0"], round(found[0].peak), found[-1].seconds
        ('recompute', 120, 0.0)
    """
    choices = [options(part, packing, offloading) for part in parts]
    whole = sum(max(stored for stored, *_ in costs.values()) for costs in choices)
    unit = max(whole / UNITS, 1.0)
    least = min(max(min(o[0] + o[1] for o in costs.values()) for costs in choices), whole)
    caps = [least * (whole / max(least, 1.0)) ** (i / (CAPS - 1)) for i in range(CAPS)]
    caps += [uniform(parts, choice, packing, offloading).peak for choice in choices[0]]
    by_choices = {}
    for cap in caps:
        if (plan := _fastest(parts, choices, cap * 1.000001, unit)) is not None:
            by_choices[tuple(plan.choices.items())] = plan
    return sorted(by_choices.values(), key=lambda plan: (plan.peak, plan.seconds))


def _fastest(
    parts: Sequence[MeasuredModule],
    choices: Sequence[Mapping[str, tuple[float, float, float]]],
    cap: float,
    unit: float,
) -> MemoryPlan | None:
    """Return the fastest plan whose peak is within `cap`, or None."""
    # State: stored units so far -> seconds, stored bytes, peak so far, choices.
    table: dict[int, tuple[float, float, float, tuple[str, ...]]] = {0: (0.0, 0.0, 0.0, ())}
    for costs in choices:
        after: dict[int, tuple[float, float, float, tuple[str, ...]]] = {}
        for seconds, stored, peak, path in table.values():
            for name, (stays, transient, extra) in costs.items():
                now = stored + stays
                if now + transient > cap:
                    continue
                key = round(now / unit)
                state = (seconds + extra, now, max(peak, now + transient), (*path, name))
                if key not in after or state[:2] < after[key][:2]:
                    after[key] = state
        table = after
    if not table:
        return None
    seconds, _, peak, path = min(table.values())
    named = {part.name: name for part, name in zip(parts, path, strict=True)}
    return MemoryPlan({"": _outside(path), **named}, peak, seconds)
