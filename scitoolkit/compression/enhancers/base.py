"""Base class of enhancers (fitted corrections of a decoded field), and the plug-in kind `enhancer`.

An enhancer lowers the mean square error of decoded values; its fitted parameters are stored in the
stream. It changes a point by at most `clip`, and points that leave the bound are corrected
afterwards, so that no enhancer can violate the bound. An enhancer that does not reduce the size at
equal quality is not used.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Hashable, Sequence
from typing import ClassVar

import numpy as np

from scitoolkit.core.config import Config
from scitoolkit.core.plugins import Kind, NeedsPackages


class Enhancer(NeedsPackages, Config):
    """Base of an enhancer; fields of a subclass are its settings, which act on `fit` only.

    Attributes:
        trained: `fit` trains for the given time, so `enhancer: auto` tries it only if
            `train_seconds` is set; closed-form enhancers are always tried.
        num_behind: number of best codecs that it is tried with.
        default_seconds: training time (s) if it is named without `train_seconds`.
    """

    name: str
    trained: ClassVar[bool] = False
    num_behind: ClassVar[int] = 1
    default_seconds: ClassVar[float] = 10.0

    @abstractmethod
    def sizes(self, num_points: int) -> Sequence[Hashable]:
        """Return the model sizes to try for a field, smallest first, as `fit` accepts them."""

    @abstractmethod
    def fit(
        self,
        values: np.ndarray,
        decoded: np.ndarray,
        error_bound: float,
        size: Hashable,
        seconds: float,
    ) -> bytes | None:
        """Return the serialised fitted enhancer, or None if the fit failed.

        Args:
            values: finite C-contiguous float32 or float64 field.
            decoded: the codec's decoded values, same shape and dtype.
            error_bound: absolute.
            size: one of `sizes`.
            seconds: training time (s), for a `trained` enhancer.
        """

    @abstractmethod
    def apply(
        self, data: bytes | memoryview, decoded: np.ndarray, error_bound: float, clip: float
    ) -> np.ndarray:
        """Return the enhanced field; no point changes by more than `clip`.

        Args:
            data: as `fit` returned it.
            decoded: C-contiguous float32 or float64 field.
            error_bound: as in `fit`.
            clip: absolute.

        Raises:
            DataError: the data are damaged.
        """


enhancers: Kind[type[Enhancer]] = Kind(
    "enhancer",
    "lowers the error of a decoded field",
    contract="scitoolkit.testing:EnhancerContract",
)
