"""What to do with the activations of each part: dynamic programming over parts and bytes.

The peak of a step is reached while the backward pass is at some part: then everything that earlier
parts keep is in memory, and what this part makes again. So the peak is the maximum over parts of
(kept up to it + its transient), not the sum of all that is kept and the largest transient.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from scitoolkit.training.memory.parts import Part

SAVE, PACK, RECOMPUTE, OFFLOAD = "save", "pack", "recompute", "offload"
RECOMPUTE_PACKED, RECOMPUTE_OFFLOADED = "recompute packed", "recompute offloaded"
RECOMPUTED = frozenset({RECOMPUTE, RECOMPUTE_PACKED, RECOMPUTE_OFFLOADED})
LOSSY = frozenset({PACK, RECOMPUTE_PACKED})
MOVED = frozenset({OFFLOAD, RECOMPUTE_OFFLOADED})
UNITS, CAPS = 128, 12


@dataclass(frozen=True)
class Packing:
    """What packing was measured to do, or offloading, after which nothing is kept.

    Args:
        ratio: bytes over kept bytes.
        seconds_per_byte: there and back.
    """

    ratio: float
    seconds_per_byte: float


@dataclass(frozen=True)
class Plan:
    """A choice for each part, and its predicted cost.

    Attributes:
        choices: name of a part -> one of the choices; "" for what is outside of all parts.
        peak: bytes of activations.
        seconds: beyond those of saving everything.
    """

    choices: Mapping[str, str]
    peak: float
    seconds: float

    @property
    def lossy(self) -> bool:
        """Whether gradients get an error."""
        return not LOSSY.isdisjoint(self.choices.values())

    @property
    def moves(self) -> bool:
        """Whether activations are offloaded."""
        return not MOVED.isdisjoint(self.choices.values())


def options(
    part: Part, packing: Packing | None = None, offloading: Packing | None = None
) -> dict[str, tuple[float, float, float]]:
    """Return choice -> bytes kept, transient bytes, extra seconds of a part."""
    found = {
        SAVE: (float(part.saved), 0.0, 0.0),
        RECOMPUTE: (float(part.inputs), float(part.saved), part.seconds),
    }
    for way, again, how in (
        (PACK, RECOMPUTE_PACKED, packing),
        (OFFLOAD, RECOMPUTE_OFFLOADED, offloading),
    ):
        if how is not None:
            per_byte, ratio = how.seconds_per_byte, how.ratio
            found[way] = (part.saved / ratio, float(part.inputs), per_byte * part.saved)
            found[again] = (
                part.inputs / ratio, float(part.saved + part.inputs),
                part.seconds + per_byte * part.inputs,
            )  # fmt: skip
    return found


def uniform(
    parts: Sequence[Part], choice: str, packing: Packing | None = None,
    offloading: Packing | None = None,
) -> Plan:  # fmt: skip
    """Return the plan of one choice for all parts."""
    kept = peak = seconds = 0.0
    for part in parts:
        stays, transient, extra = options(part, packing, offloading)[choice]
        kept, seconds = kept + stays, seconds + extra
        peak = max(peak, kept + transient)
    named = {part.name: choice for part in parts}
    return Plan({"": _outside(named.values()), **named}, peak, seconds)


def _outside(choices: Iterable[str]) -> str:
    """Return the choice for what is outside of all parts."""
    taken = set(choices)
    return PACK if taken & LOSSY else OFFLOAD if taken & MOVED else SAVE


def plans(
    parts: Sequence[Part], packing: Packing | None, offloading: Packing | None = None
) -> list[Plan]:
    """Return the fastest plan under each of several caps on the peak, the smallest peak first.

    Args:
        parts: in the order in which they run.
        packing: None where nothing can be packed.
        offloading: None where nothing can be offloaded.

    Example:
        >>> parts = [Part(str(i), i, 1, 100, 10, 1.0) for i in range(3)]
        >>> found = plans(parts, None)
        >>> found[0].choices["0"], round(found[0].peak), found[-1].seconds
        ('recompute', 120, 0.0)
    """
    choices = [options(part, packing, offloading) for part in parts]
    whole = sum(max(kept for kept, *_ in each.values()) for each in choices)
    unit = max(whole / UNITS, 1.0)
    least = min(max(min(o[0] + o[1] for o in each.values()) for each in choices), whole)
    caps = [least * (whole / max(least, 1.0)) ** (i / (CAPS - 1)) for i in range(CAPS)]
    caps += [uniform(parts, choice, packing, offloading).peak for choice in choices[0]]
    found = {}
    for cap in caps:
        if (plan := _fastest(parts, choices, cap * 1.000001, unit)) is not None:
            found[tuple(plan.choices.items())] = plan
    return sorted(found.values(), key=lambda plan: (plan.peak, plan.seconds))


def _fastest(
    parts: Sequence[Part], choices: Sequence[Mapping[str, tuple[float, float, float]]],
    cap: float, unit: float,
) -> Plan | None:  # fmt: skip
    """Return the fastest plan whose peak is within a cap; None where there is none."""
    # State: units kept so far -> seconds, exact bytes kept, peak so far, choices.
    table: dict[int, tuple[float, float, float, tuple[str, ...]]] = {0: (0.0, 0.0, 0.0, ())}
    for each in choices:
        after: dict[int, tuple[float, float, float, tuple[str, ...]]] = {}
        for seconds, kept, peak, path in table.values():
            for name, (stays, transient, extra) in each.items():
                now = kept + stays
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
    return Plan({"": _outside(path), **named}, peak, seconds)
