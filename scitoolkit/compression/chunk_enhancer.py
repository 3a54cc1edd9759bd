"""Enhancer of the chunks of a variable, fitted on one of them and stored once.

The C library adds its correction to every chunk that gains, also in programs without Python: a
chunk is coded within two thirds of the bound, and the correction is at most a third of it, so that
no point leaves the bound. All chunks, and all files of a series, share one enhancer.

Source: Jia et al. 2024, arXiv:2404.13470 (enhancers of decoded values).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from scitoolkit.compression.choose import Options
from scitoolkit.compression.chunked import VariableSurvey, sample
from scitoolkit.compression.compress import filled
from scitoolkit.compression.enhancers import Enhancer
from scitoolkit.compression.field import GUARD, MARGIN, exponent_of
from scitoolkit.compression.mask import special_values
from scitoolkit.compression.native import library
from scitoolkit.core.log import get_logger

log = get_logger(__name__)


def with_enhancer(
    item: Any, survey: VariableSurvey, options: Options, where: str
) -> VariableSurvey:
    """Return the survey of a variable with the enhancer of its chunks, if it gains.

    Args:
        item: variable that `chunked.refusal` accepts.
        survey: result of `chunked.survey`.
        options: with the enhancer and its training time.
        where: name of the variable, for messages.
    """
    return replace(survey, enhancer=_fitted(item, survey, options, where))


def _fitted(
    item: Any, survey: VariableSurvey, options: Options, where: str
) -> tuple[str, bytes] | None:
    enhancer, bound = options.enhancer, survey.absolute
    if not isinstance(enhancer, Enhancer) or survey.extras.relative or not bound > 0:
        return None
    if exponent_of(bound):
        log.warning("%s: no enhancer for a bound of %g", where, bound)
        return None
    values = max((_finite(part, survey) for part in sample(item)), key=lambda v: float(np.std(v)))
    if float(np.ptp(values)) <= 2 * bound:
        return None
    inner = bound / (1 + MARGIN) * (1 - GUARD)
    decoded = library.encode(values, inner, thorough=False)[1]
    sizes = enhancer.sizes(values.size)
    seconds = (options.train_seconds or enhancer.default_seconds) / len(sizes)
    best, least = None, _squares(values, decoded)
    for size in sizes:
        data = enhancer.fit(values, decoded, bound, size, seconds)
        if data is None:
            continue
        left = _squares(values, enhancer.apply(data, decoded, bound, MARGIN * inner))
        if left < least:
            best, least = (enhancer.name, data), left
    if best is None:
        log.info("%s: the enhancer %s gains nothing", where, enhancer.name)
    return best


def _finite(part: np.ndarray, survey: VariableSurvey) -> np.ndarray:
    """Return values without missing ones, in native byte order."""
    native = part.astype(part.dtype.newbyteorder("="))
    return filled(native, special_values(native, survey.missing, None))


def _squares(values: np.ndarray, decoded: np.ndarray) -> float:
    return float(np.mean((values.astype(np.float64) - decoded) ** 2))
