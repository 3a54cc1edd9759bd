"""Network enhancer: GWLZ's group-wise networks, one per value range of the decoded field.

The inputs of a network are the differences of a point to its 26 neighbours and to the six at
distance two, in units of the error bound; its output is the predicted error of the base codec at
the point. It is a sparse 5 x 5 x 5 convolution with one hidden layer, evaluated by a fused C
kernel. Groups are computed from the decoded field and need no storage. Networks are trained on the
field during compression and stored with it, so they need not generalise. They start as the
identity because the last layer is zero, are quantised before verification, and are used only if
they gain more than their bytes cost.

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
    """Group-wise enhancer networks, one per value range, trained on the field.

    Attributes:
        weights: file of networks trained on another field, for example an earlier snapshot, to use
            instead of training.
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
        self,
        values: np.ndarray,
        decoded: np.ndarray,
        error_bound: float,
        size: Hashable,
        seconds: float,
    ) -> bytes | None:
        """Return the serialised trained and quantised weights; None if training diverged."""
        if self.weights is not None:
            return self._trained().to_bytes()
        from scitoolkit.compression.enhancers.network_training import train

        groups, hidden = cast(tuple[int, int], size)
        trained = train(values, decoded, error_bound, groups, hidden, seconds)
        return None if trained is None else trained.to_bytes()

    def apply(
        self, data: bytes | memoryview, decoded: np.ndarray, error_bound: float, clip: float
    ) -> np.ndarray:
        """Return the field corrected by the predicted error of each point."""
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
