"""Deterministic replacements for samples that cannot be read."""

from __future__ import annotations

import numpy as np

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger
from scitoolkit.io.loader.file_source import FileSource

_logger = get_logger(__name__)
_TRIES = 100


class SampleFallbacks:
    """Replacements for unreadable samples.

    Candidates depend only on the seed and the sample's number, so ranks agree without
    communication and every step keeps its length.

    Args:
        source: the samples.
        seed: of the draws.
        on_error: "raise" or "skip".

    Attributes:
        of: (samples,) number of the sample used for each sample; usually itself.
    """

    of: np.ndarray

    def __init__(self, source: FileSource, seed: int, on_error: str) -> None:
        self.source: FileSource = source
        self.seed: int = seed
        self.on_error: str = on_error
        self.of = np.arange(len(source))

    @property
    def replaced(self) -> list[int]:
        """The samples that were replaced."""
        return [int(i) for i in np.flatnonzero(self.of != np.arange(len(self.of)))]

    def replace(self, sample: int, error: DataError, where: str) -> None:
        """Choose a replacement, or raise the error with the sample's number.

        Raises:
            DataError: `on_error` is "raise", or no readable replacement was found.
        """
        where = f"{where}, sample {sample}: {error.where}"
        if self.on_error == "raise":
            raise DataError(error.what, where=where, fix=error.fix)
        generator = np.random.Philox(key=[self.seed, sample])
        for draw in generator.random_raw(_TRIES).tolist():
            candidate = int(draw % len(self.of))
            # A sample that was replaced itself is not read again, and no replacement has another.
            if self.of[candidate] == candidate and self._readable(candidate):
                self.of[sample] = candidate
                _logger.warning("sample %d is replaced by sample %d: %s", sample, candidate, error)
                return
        raise DataError(
            f"none of {_TRIES} other samples can be read instead ({error.what})", where=where
        )

    def _readable(self, sample: int) -> bool:
        try:
            self.source.read(np.array([sample]))
        except DataError:
            return False
        return True
