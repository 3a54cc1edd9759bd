"""Which sample stands in for one that cannot be read: the same on every rank and in every run."""

from __future__ import annotations

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.io.loader.file_source import FileSource

_logger = get_logger(__name__)
_TRIES = 100


class SampleFallbacks:
    """Stand-ins of samples that cannot be read.

    The candidates follow from the seed and the sample's number alone, so ranks agree without
    talking and every step keeps its length.

    Args:
        source: the samples.
        seed: of the draws.
        on_error: "raise" or "skip".

    Attributes:
        of: the sample that is taken for every sample; mostly itself.
    """

    of: np.ndarray

    def __init__(self, source: FileSource, seed: int, on_error: str) -> None:
        self.source: FileSource = source
        self.seed: int = seed
        self.on_error: str = on_error
        self.of = np.arange(len(source))

    @property
    def replaced(self) -> list[int]:
        """The samples that others stand in for."""
        return [int(i) for i in np.flatnonzero(self.of != np.arange(len(self.of)))]

    def replace(self, sample: int, error: DataError, where: str) -> None:
        """Find a stand-in, or raise the error with the sample's number.

        Raises:
            DataError: samples are not to be skipped, or hardly any can be read.
        """
        where = f"{where}, sample {sample}: {error.where}"
        if self.on_error == "raise":
            raise DataError(error.what, where=where, fix=error.fix)
        generator = np.random.Philox(key=[self.seed, sample])
        for draw in generator.random_raw(_TRIES).tolist():
            candidate = int(draw % len(self.of))
            if self.of[candidate] == candidate and self._readable(candidate):
                self.of[sample] = candidate
                _logger.warning(
                    "sample %d is left out, sample %d taken for it: %s", sample, candidate, error
                )
                return
        raise DataError(
            f"none of {_TRIES} other samples can be read in its place ({error.what})", where=where
        )

    def _readable(self, sample: int) -> bool:
        try:
            self.source.read(np.array([sample]))
        except DataError:
            return False
        return True
