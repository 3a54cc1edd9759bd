"""Samples that a generator makes for a training: files by number, candidates, and a stream.

The samples of a job have one numbering, that of its draw, with those for validation and testing.
Each is a function of the seed, its number and the chosen candidate, in files and streams alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from logging import Logger
from pathlib import Path
from typing import TYPE_CHECKING, Any

from scitoolkit.core.draw import DrawConfig
from scitoolkit.core.log import get_logger

if TYPE_CHECKING:
    from scitoolkit.io.loader.streamed import SimulationStream

log: Logger = get_logger(__name__)
_NAME = "sample_"


class ProducedSamples:
    """Numbered samples of a generator.

    Args:
        generator: member of the kind `generator`.
        draw: with the number of samples for training.
        held_out: number of samples for validation and testing.
        seed: of the job.
        folder: of the files.
        processes: number of files that are made in parallel.

    Attributes:
        total: number of samples of the job.
        choices: {number: candidate} of the samples whose candidate is not 0.
    """

    def __init__(
        self,
        generator: Any,
        draw: DrawConfig,
        held_out: int,
        *,
        seed: int,
        folder: Path,
        processes: int = 1,
    ) -> None:
        self.total: int = held_out + draw.samples
        self.choices: Mapping[int, int] = {}
        self._generator = generator
        self._draw = draw.model_copy(update={"samples": self.total})
        self._seed, self._folder, self._processes = seed, folder, processes

    def paths(self, count: int) -> list[Path]:
        """Return the files of the first samples by number, whether they exist or not."""
        suffix = self._generator.suffix
        return [self._folder / f"{_NAME}{number:05d}{suffix}" for number in range(count)]

    def stored(self) -> int:
        """Return the number of samples up to the last file: one before it may be missing."""
        files = self._folder.glob(f"{_NAME}*{self._generator.suffix}")
        return max((int(path.stem.removeprefix(_NAME)) + 1 for path in files), default=0)

    def files(self, count: int) -> list[Path]:
        """Make the missing ones of the first samples, in one process; return files by number.

        Raises:
            NumericalError: a sample and all its replacements failed.
            DataError: the disk is full; finished samples are kept.
        """
        log.info("%d samples of %s as files", count, self._generator.name)
        made: list[Path] = self._generator.first_samples(
            self._draw, self._seed, count, self._folder, self._processes, self.choices
        )
        return made

    def candidates(self, number: int, count: int) -> list[Sequence[Any]]:
        """Return the first candidates of a sample without labels, as the generator makes them."""
        unlabelled = self._generator.unlabelled
        return [unlabelled(self._draw, self._seed, number, candidate) for candidate in range(count)]

    def stream(self, **settings: Any) -> SimulationStream:
        """Return a stream of the samples in memory; settings are those of `Generator.stream`."""
        stream: SimulationStream = self._generator.stream(self._draw, self._seed, **settings)
        return stream
