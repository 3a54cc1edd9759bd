"""GWLZ's group-wise enhancers: one light network a value range of the decoded field.

A network sees the differences of a point to its 26 neighbours and to the six at distance two, in
units of the error bound, and predicts the error of the base codec there: a sparse 5 x 5 x 5
convolution, a hidden layer and an output, evaluated by fused C. Groups come from the decoded
field and cost no bits. Networks are trained on the field itself while it is compressed (they
travel with it, so nothing has to generalise), start as "no correction" because the last layer is
zero, and are quantised before anything is verified. They are used when they gain more than their
bytes cost.

Source: Jia et al. 2024, arXiv:2404.13470 (group-wise enhancers, residual learning).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import ClassVar, Literal, cast

import numpy as np

from scitoolkit.compression.enhancers.base import Enhancer
from scitoolkit.compression.enhancers.group_weights import GroupWeights
from scitoolkit.compression.native.library import unavailable
from scitoolkit.core.config import DataPath
from scitoolkit.core.errors import DataError

# (groups, hidden width) by number of points: small fields cannot carry large networks.
SIZES = ((1 << 16, ((1, 4),)), (1 << 20, ((1, 8), (2, 12))), (1 << 62, ((2, 12),)))


class Network(Enhancer):
    """One light network a value range of the decoded field, trained on the field itself.

    Attributes:
        weights: file of networks that were trained on another field, a snapshot before this one
            say; nothing is trained then.
    """

    name: Literal["network"] = "network"
    weights: DataPath | None = None
    trained: ClassVar[bool] = True

    @classmethod
    def unavailable(cls) -> str:
        """Return why the kernels cannot be compiled, "" if they can."""
        return unavailable()

    def sizes(self, num_points: int) -> Sequence[tuple[int, int]]:
        """Return (groups, hidden width)."""
        if self.weights is not None:
            return (self._trained().bias.shape,)
        return next(sizes for limit, sizes in SIZES if num_points <= limit)

    def fit(
        self, values: np.ndarray, decoded: np.ndarray, error_bound: float, size: Hashable,
        seconds: float,
    ) -> bytes | None:  # fmt: skip
        """Return trained and quantised weights, None when training diverged."""
        if self.weights is not None:
            return self._trained().to_bytes()
        from scitoolkit.compression.enhancers.network_training import train

        groups, hidden = cast(tuple[int, int], size)
        trained = train(values, decoded, error_bound, groups, hidden, seconds)
        return None if trained is None else trained.to_bytes()

    def apply(
        self, data: bytes | memoryview, decoded: np.ndarray, error_bound: float, clip: float
    ) -> np.ndarray:
        """Return the field with each point's predicted error taken off."""
        return GroupWeights.from_bytes(data).apply(decoded, error_bound, clip)

    def _trained(self) -> GroupWeights:
        assert self.weights is not None
        try:
            return GroupWeights.from_bytes(self.weights.read_bytes())
        except OSError as error:
            what = f"cannot be read ({error.strerror})"
            raise DataError(what, where=str(self.weights)) from None
        except DataError as error:
            raise DataError(str(error), where=str(self.weights)) from None
