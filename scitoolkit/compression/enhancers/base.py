"""Enhancers as plug-ins: fitted corrections of a decoded field that travel with its stream.

An enhancer lowers the mean square error of what a codec decodes. It may move a point by at most
`clip` bounds; the points that it moves out of the bound are corrected afterwards, so that no
enhancer can break a bound, and one that does not shrink the file at equal quality is left out.
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
        trained: `fit` takes as long as it is given, so `enhancer: auto` tries it only where
            `train_seconds` is set; the others, in closed form, are tried in any case.
        num_behind: number of best codecs that it is tried behind.
        default_seconds: training time where it is asked for without `train_seconds`.
    """

    name: str
    trained: ClassVar[bool] = False
    num_behind: ClassVar[int] = 1
    default_seconds: ClassVar[float] = 10.0

    @abstractmethod
    def sizes(self, num_points: int) -> Sequence[Hashable]:
        """Return the sizes that a field may carry, smallest first, in whatever `fit` takes."""

    @abstractmethod
    def fit(
        self, values: np.ndarray, decoded: np.ndarray, error_bound: float, size: Hashable,
        seconds: float,
    ) -> bytes | None:  # fmt: skip
        """Return the fitted enhancer as bytes, None where the fit failed.

        Args:
            values: finite C-contiguous float32 or float64 field.
            decoded: what the codec decodes to, same shape and dtype.
            error_bound: absolute.
            size: one of `sizes`.
            seconds: time for training, if it is `trained`.
        """

    @abstractmethod
    def apply(
        self, data: bytes | memoryview, decoded: np.ndarray, error_bound: float, clip: float
    ) -> np.ndarray:
        """Return the enhanced field; no point moves by more than `clip`.

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
