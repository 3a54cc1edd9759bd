"""Values of a file against those that a surrogate was trained on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.io.campaign.statistics import mark_in

log = get_logger(__name__)
LARGE = 1e19
"""Values of at least this size are none of quantities without a unit, such as features of nodes."""
SMALL = 0.02
"""Share of the largest value of the training, below which the largest value of a file is in another
unit: km for m, kW for W. Zeros are in any."""
FAR = 20.0
"""Root mean square distance from the mean of the training, in its standard deviations, beyond which
values are in another unit or marks of missing data rather than another state."""
WIDE = 4.0
"""Standard deviations from the mean of the training within which its values are taken to be, where
their range was not stored."""


@dataclass(frozen=True)
class UsualValues:
    """Values of a variable in the training.

    Attributes:
        mean: their mean.
        deviation: their standard deviation.
        unit: their unit, "" if unknown.
    """

    mean: float
    deviation: float
    unit: str = ""

    @property
    def ends(self) -> tuple[float, float]:
        """The least and the largest value, if these are not far from the mean."""
        return self.mean - WIDE * self.deviation, self.mean + WIDE * self.deviation

    def covers(self, number: float) -> bool:
        """Return whether a number is among the values."""
        return self.ends[0] <= number <= self.ends[1]


def refuse_unstated_unit(
    ends: tuple[float, float],
    usual: tuple[float, float],
    unit: str,
    where: str,
    far: bool = False,
) -> None:
    """Refuse values without a unit that are all outside those of the training, or far smaller.

    Without a unit nobody can convert them: temperatures in degC would be used as if in K.

    Args:
        ends: least and largest of the values.
        usual: least and largest of the training.
        unit: that of the training; "" refuses nothing.
        where: file and variable, for messages.
        far: whether they are refused even if some are among those of the training.

    Raises:
        DataError: with both ranges.

    Example:
        >>> refuse_unstated_unit((5.0, 20.0), (270.0, 300.0), "", "a.nc: variable t")
    """
    largest, trained = (max(abs(low), abs(high)) for low, high in (ends, usual))
    far = far or 0 < largest < SMALL * trained
    if unit and (far or ends[0] > usual[1] or ends[1] < usual[0]):
        raise DataError(
            f"values from {ends[0]:.6g} to {ends[1]:.6g} without a unit",
            where=where,
            allowed=f"values in {unit}; those of the training are {usual[0]:.6g} to {usual[1]:.6g}",
            fix="write their unit in the file: the attribute units, or a column as name [unit]",
        )


def require_familiar(
    values: Mapping[str, np.ndarray],
    usual: Mapping[str, UsualValues],
    stated: Mapping[str, str],
    where: str,
) -> None:
    """Compare values with those of the training: refuse other ones without a unit, tell far ones.

    Units are compared where files state them; this finds files that state none or a wrong one.

    Args:
        values: {variable: finite values, or NaN where there are none}.
        usual: {variable: its values in the training}; others are not compared.
        stated: {variable: unit that the file states}, "" or no entry without one.
        where: the file, for messages.

    Raises:
        DataError: values without a unit, all of them outside of those of the training or most of
            them far from these, of a variable that had one in the training.
    """
    for name, trained in usual.items():
        present = np.asarray(values[name], np.float64)
        present = present[np.isfinite(present)]
        mean, deviation = trained.mean, trained.deviation
        if not present.size or not deviation > 0:
            continue
        ends = float(present.min()), float(present.max())
        unit = "" if stated.get(name) else trained.unit
        distance = float(np.sqrt(np.mean(((present - mean) / deviation) ** 2)))
        what = f"{where}: variable {name}"
        refuse_unstated_unit(ends, trained.ends, unit, what, distance > FAR)
        warn_if_far(ends, float(present.mean()), distance, trained, what)


def warn_if_far(
    ends: tuple[float, float], mean: float, distance: float, usual: UsualValues, where: str
) -> None:
    """Warn of values far from those of the training.

    Args:
        ends: least and largest of the values.
        mean: their mean.
        distance: their root mean square distance from the mean of the training, in its standard
            deviations.
        usual: those of the training.
        where: file and variable, for messages.
    """
    if distance > FAR:
        farthest = max(ends, key=lambda end: abs(end - usual.mean))
        log.warning(
            "%s: a mean of %.4g and values up to %.4g, %.3g standard deviations from the training "
            "with a mean of %.4g. Is it in another unit?",
            *(where, mean, farthest, distance, usual.mean),
        )


def refuse_marks(
    values: np.ndarray, where: str, least: float = 0.0, usual: UsualValues | None = None
) -> None:
    """Refuse values among which some mark missing data although the file does not say so.

    Args:
        values: finite values of one variable, of any shape.
        where: file and variable, for messages.
        least: size of the marks that are looked for; `LARGE` where -999 may be a code.
        usual: those of the training, which are no marks.

    Raises:
        DataError: with the number and the count, see `mark_in`.

    Example:
        >>> refuse_marks(np.array([9.0, 1e3]), "a.h5: depth")
    """
    if not values.size or np.abs(values).max() < least:
        return
    mark = mark_in(values)
    if mark is not None and not (usual is not None and usual.covers(mark[0])):
        fix = f"set the attribute _FillValue = {mark[0]:g}, and leave these points out"
        raise DataError(mark[1], where=where, fix=fix)
