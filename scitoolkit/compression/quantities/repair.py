"""Repair of decoded values until every quantity keeps its bound.

At each point where a quantity violates its bound, the value that contributes most to the error is
moved by whole steps of twice its a-priori bound. The quantities are then evaluated again, because
one repair often fixes several points. A value already within half a step is stored exactly, and
after `GENTLE_ROUNDS` all values that a violating point depends on are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from scitoolkit.compression.patches import moved_by
from scitoolkit.compression.quantities.check import Fields, Points, Quantity

GENTLE_ROUNDS, MAX_ROUNDS = 40, 400
MAX_UNITS = 1 << 20


@dataclass
class Repairs:
    """Repairs of one decoded variable.

    Args:
        native: original values in native byte order.
        decoded: decoded values before repairs, in the same dtype.
        step: width of a unit; 0 if values can only be stored exactly.
        missing: True where values are missing, which are restored in any case.

    Attributes:
        units: (size,) int32, steps to add to each value.
        exact: (size,) bool, values to store exactly.
        current: repaired values (float64), NaN where missing.
    """

    native: np.ndarray
    decoded: np.ndarray
    step: float
    missing: np.ndarray | None
    units: np.ndarray = field(init=False)
    exact: np.ndarray = field(init=False)
    current: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        """Initialise without repairs."""
        self.units = np.zeros(self.native.size, np.int32)
        self.exact = np.zeros(self.native.size, bool)
        self.current = as_float(self.decoded, self.missing)

    def move(self, places: np.ndarray) -> None:
        """Move values at flat indices to within half a step of their originals, or store them."""
        places = np.unique(places)
        error = (
            self.native.reshape(-1)[places].astype(np.float64) - self.current.reshape(-1)[places]
        )
        places, error = places[error != 0], error[error != 0]
        with np.errstate(all="ignore"):
            units = np.rint(error / self.step) if self.step else np.zeros(len(places))
        # A value is moved once: two quantities that pull it apart would move it to and fro for
        # ever.
        gentle = (units != 0) & (np.abs(units) < MAX_UNITS) & (self.units[places] == 0)
        moved = places[gentle]
        self.units[moved] = units[gentle]
        flat = self.current.reshape(-1)
        flat[moved] = moved_by(
            self.decoded.reshape(-1)[moved], self.units[moved], self.step
        ).astype(np.float64)
        self.store(places[~gentle])

    def store(self, places: np.ndarray) -> None:
        """Mark values at flat indices for exact storage."""
        self.exact[places] = True
        self.units[places] = 0
        self.current.reshape(-1)[places] = self.native.reshape(-1)[places]


def as_float(values: np.ndarray, missing: np.ndarray | None) -> np.ndarray:
    """Return a C-contiguous float64 copy with NaN where values are missing."""
    out = np.array(values, np.float64, order="C")
    if missing is not None:
        out[missing & ~np.isinf(out)] = np.nan
    return out


def repair(
    quantities: Sequence[Quantity], original: Fields, repairs: Mapping[str, Repairs]
) -> bool:
    """Repair in place until every quantity keeps its bound; return whether this succeeded."""
    for number in range(MAX_ROUNDS):
        current = {name: r.current for name, r in repairs.items()}
        done = True
        for quantity in quantities:
            value = quantity.evaluate(current)
            broken = quantity.broken(value)
            if not broken.any():
                continue
            done = False
            chosen = _chosen(quantity, current, value, broken)
            gentle = number < GENTLE_ROUNDS
            _mend(quantity, original, repairs, chosen, gentle=gentle)
        if done:
            return True
    return False


def _chosen(
    quantity: Quantity, current: Fields, value: np.ndarray, broken: np.ndarray
) -> np.ndarray:
    """Return a mask of points to repair: for a mean, those that contribute most to its error."""
    if quantity.averaged is None:
        return broken
    with np.errstate(invalid="ignore"):
        change = quantity.of_arguments(quantity.arguments_of(current)) - quantity.original_points
        excess = value - quantity.value
        push = change * np.sign(quantity.spread(np.where(broken, excess, 0.0)))
        # Error to remove from each mean, which leaves 0.9 of the tolerance.
        wanted = np.where(broken, np.abs(excess) - 0.9 * np.asarray(quantity.tolerance), 0.0)
    if not np.isfinite(wanted).all():
        return quantity.spread(broken) & ~(change == 0)
    push = np.where(np.isfinite(push) & quantity.spread(broken), np.maximum(push, 0.0), 0.0)
    total = float(wanted.max()) * quantity.num_averaged
    # Only contributions in the direction of the error, largest first, until they sum to what has to
    # be removed: fewest repairs per mean.
    order = np.argsort(push, axis=None)[::-1]
    enough = np.searchsorted(np.cumsum(push.reshape(-1)[order]), total * int(broken.sum())) + 1
    chosen = np.zeros(push.size, bool)
    chosen[order[:enough]] = True
    return chosen.reshape(push.shape) & (push > 0)


def _mend(
    quantity: Quantity,
    original: Fields,
    repairs: Mapping[str, Repairs],
    chosen: np.ndarray,
    *,
    gentle: bool,
) -> None:
    """Move the value that contributes most to the error of each point, or store all values."""
    at = quantity.points(chosen)
    terms = [
        (key, name, weight, places)
        for key, (name, stencil) in quantity.arguments.items()
        for weight, places in stencil.terms(at)
    ]
    if not gentle:
        for _, name, weight, places in terms:
            repairs[name].store(places[weight != 0])
        return
    blame = _contributions(quantity, original, repairs, terms, at)
    best = np.argmax(blame, 0)
    hopeless = ~(blame.max(0) > 0)
    for number, (_, name, weight, places) in enumerate(terms):
        repairs[name].move(places[(best == number) & ~hopeless])
        repairs[name].store(places[hopeless & (weight != 0)])


def _contributions(
    quantity: Quantity,
    original: Fields,
    repairs: Mapping[str, Repairs],
    terms: Sequence[tuple[str, str, np.ndarray, np.ndarray]],
    at: Points,
) -> np.ndarray:
    """Return (terms, points): the part of the error at each point that is due to each term.

    The contribution of an argument is the change of the error when the argument is exact. It is
    distributed over the values of a derivative in proportion to their weighted errors.
    """
    now: dict[str, np.ndarray] = {}
    true: dict[str, np.ndarray] = {}
    parts = []
    for key, name, weight, places in terms:
        x = original[name].reshape(-1)[places]
        y = repairs[name].current.reshape(-1)[places]
        used = weight != 0
        now[key] = now.get(key, 0.0) + np.where(used, weight * y, 0.0)
        true[key] = true.get(key, 0.0) + np.where(used, weight * x, 0.0)
        parts.append(np.where(used, weight * (y - x), 0.0))
    value, wanted = quantity.of_arguments(now, at), quantity.of_arguments(true, at)
    value, wanted = (np.broadcast_to(v, len(at[0])) for v in (value, wanted))
    out = np.zeros((len(terms), len(at[0])))
    with np.errstate(all="ignore"):
        sign = np.sign(value - wanted)
        for number, ((key, *_), part) in enumerate(zip(terms, parts, strict=True)):
            # The error that vanishes when one argument alone is exact, divided among the points of
            # its stencil in proportion to their part of the argument's error.
            share = value - quantity.of_arguments({**now, key: true[key]}, at)
            out[number] = sign * share * part / (now[key] - true[key])
    return np.where(np.isfinite(out), out, 0.0)
