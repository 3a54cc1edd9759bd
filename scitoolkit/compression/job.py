"""Compression as a job of the command line and the Python API."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from scitoolkit.compression.config import CompressionConfig
from scitoolkit.core.job import PipelineJob
from scitoolkit.core.run_directory import RunDirectory


class CompressionJob(PipelineJob):
    """Compression of one file."""

    config_class: ClassVar[type[CompressionConfig]] = CompressionConfig
    pipeline_name: ClassVar[str] = "scitoolkit.compression.pipeline"
    task: ClassVar[str] = "compress"
    starter_name: ClassVar[str] = "scitoolkit.compression.starter:starter"

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
