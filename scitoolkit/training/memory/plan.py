"""What to do with the activations of each part: dynamic programming over parts and bytes.

The peak of a step is reached while the backward pass is at some part: then everything that earlier
parts keep is in memory, and what this part makes again. So the peak is the maximum over parts of
(kept up to it + its transient), not the sum of all that is kept and the largest transient.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from scitoolkit.training.memory.parts import Part

SAVE, PACK, RECOMPUTE, RECOMPUTE_PACKED = "save", "pack", "recompute", "recompute packed"
LOSSY = frozenset({PACK, RECOMPUTE_PACKED})
UNITS, CAPS = 128, 12


@dataclass(frozen=True)
class Packing:
    """What packing was measured to do.

    Args:
        ratio: bytes over packed bytes.
        seconds_per_byte: of packing and unpacking.
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


def options(part: Part, packing: Packing | None) -> dict[str, tuple[float, float, float]]:
    """Return choice -> bytes kept, transient bytes, extra seconds of a part."""
    found = {
        SAVE: (float(part.saved), 0.0, 0.0),
        RECOMPUTE: (float(part.inputs), float(part.saved), part.seconds),
    }
    if packing is not None:
        per_byte, ratio = packing.seconds_per_byte, packing.ratio
        found[PACK] = (part.saved / ratio, float(part.inputs), per_byte * part.saved)
        found[RECOMPUTE_PACKED] = (
            part.inputs / ratio, float(part.saved + part.inputs),
            part.seconds + per_byte * part.inputs,
        )  # fmt: skip
    return found


def uniform(parts: Sequence[Part], choice: str, packing: Packing | None) -> Plan:
    """Return the plan of one choice for all parts."""
    kept = peak = seconds = 0.0
    for part in parts:
        stays, transient, extra = options(part, packing)[choice]
        kept, seconds = kept + stays, seconds + extra
        peak = max(peak, kept + transient)
    outside = {"": PACK if choice in LOSSY else SAVE}
    return Plan({**outside, **{part.name: choice for part in parts}}, peak, seconds)


def plans(parts: Sequence[Part], packing: Packing | None) -> list[Plan]:
    """Return the fastest plan under each of several caps on the peak, the smallest peak first.

    Args:
        parts: in the order in which they run.
        packing: None where nothing can be packed.

    Example:
        >>> parts = [Part(str(i), i, 1, 100, 10, 1.0) for i in range(3)]
        >>> found = plans(parts, None)
        >>> found[0].choices["0"], round(found[0].peak), found[-1].seconds
        ('recompute', 120, 0.0)
    """
    choices = [options(part, packing) for part in parts]
    whole = sum(max(kept for kept, *_ in each.values()) for each in choices)
    unit = max(whole / UNITS, 1.0)
    least = min(max(min(o[0] + o[1] for o in each.values()) for each in choices), whole)
    caps = [least * (whole / max(least, 1.0)) ** (i / (CAPS - 1)) for i in range(CAPS)]
    caps += [uniform(parts, choice, packing).peak for choice in choices[0]]
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
    lossy = not LOSSY.isdisjoint(path)
    named = {part.name: name for part, name in zip(parts, path, strict=True)}
    return Plan({"": PACK if lossy else SAVE, **named}, peak, seconds)
