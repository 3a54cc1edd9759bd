"""Values of a file against those that a surrogate was trained on."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.io.campaign.statistics import mark_in

log = get_logger(__name__)
LARGE = 1e19
"""Values of at least this size are none of quantities without a unit, such as features of nodes."""
FAR = 20.0
"""Root mean square distance from the mean of the training, in its standard deviations, beyond which
values are in another unit or marks of missing data rather than another state."""


def warn_if_far(
    values: Mapping[str, np.ndarray], trained: Mapping[str, tuple[float, float]], where: str
) -> None:
    """Warn of variables whose values are far from those of the training.

    Units are compared where files state them; this finds files that state none or a wrong one.

    Args:
        values: {variable: finite values, or NaN where there are none}.
        trained: {variable: (mean, standard deviation) in the training}; others are not compared.
        where: the file, for messages.
    """
    for name, (mean, deviation) in trained.items():
        present = np.asarray(values[name], np.float64)
        present = present[np.isfinite(present)]
        if not present.size or not deviation > 0:
            continue
        distance = float(np.sqrt(np.mean(((present - mean) / deviation) ** 2)))
        if distance > FAR:
            farthest = present[np.argmax(np.abs(present - mean))]
            told = where, name, present.mean(), farthest, distance, mean
            log.warning(
                "%s: variable %s: a mean of %.4g and values up to %.4g, %.3g standard deviations "
                "from the training with a mean of %.4g. Is it in another unit?",
                *told,
            )


def refuse_marks(values: np.ndarray, where: str, least: float = 0.0) -> None:
    """Refuse values among which some mark missing data although the file does not say so.

    Args:
        values: finite values of one variable, of any shape.
        where: file and variable, for messages.
        least: size of the marks that are looked for; `LARGE` where -999 may be a code.

    Raises:
        DataError: with the number and the count, see `mark_in`.

    Example:
        >>> refuse_marks(np.array([9.0, 1e3]), "a.h5: depth")
    """
    if values.size and np.abs(values).max() >= least and (mark := mark_in(values)) is not None:
        fix = f"set the attribute _FillValue = {mark[0]:g}, and leave these points out"
        raise DataError(mark[1], where=where, fix=fix)
