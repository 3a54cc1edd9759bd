"""Compression as a job of the command line and the Python API."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from scitoolkit.compression.config import CompressionConfig
from scitoolkit.core.job import Job
from scitoolkit.core.results import Results
from scitoolkit.core.run_directory import RunDirectory


class CompressionJob(Job):
    """Compression of one file."""

    config_class: ClassVar[type[CompressionConfig]] = CompressionConfig

    def check(self, config: CompressionConfig) -> Mapping[str, Any]:
        """Open the file and name what would be compressed; write nothing."""
        from scitoolkit.compression import pipeline

        return pipeline.check(config)

    def train(self, config: CompressionConfig, run: RunDirectory, *, resume: bool = False) -> None:
        """Write the compressed file into the run; a resumed run starts anew, as it is short."""
        from scitoolkit.compression import pipeline

        pipeline.train(config, run, resume=resume)

    def evaluate(self, directory: Path, data: Path | None = None) -> Results:
        """Verify against the original, and compare with the plain codecs at the same size."""
        from scitoolkit.compression import pipeline

        return pipeline.evaluate(directory, data)

    def predict(self, directory: Path, source: Path, output: Path) -> None:
        """Compress another file as the run's configuration says."""
        from scitoolkit.compression import pipeline

        pipeline.predict(directory, source, output)

    def search_trial(
        self, config: CompressionConfig, run: RunDirectory, *, resume: bool = False
    ) -> Mapping[str, float]:
        """Compress, measure, and return figures that compare codecs and bounds.

        `accuracy_gain` is log2(standard deviation / RMSE) - bits per value (Lindstrom 2017,
        "Error distributions of lossy floating-point compressors"), the mean over variables: the
        bits per value that the compressor saves over coding independent values.
        """
        from scitoolkit.compression import pipeline

        return pipeline.search_trial(config, run, resume=resume)

    def search_cost(self, config: CompressionConfig) -> Mapping[str, float]:
        """Return nothing: size and speed are known only afterwards."""
        return {}
