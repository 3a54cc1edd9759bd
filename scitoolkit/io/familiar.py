"""Values of a file against those that a surrogate was trained on."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from scitoolkit.core.log import get_logger

log = get_logger(__name__)
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
