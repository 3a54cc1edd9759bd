"""Compression as a job for the command line and the Python API."""

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
        """Compress a file and return the scores of the trial; see `pipeline.search_trial`."""
        from scitoolkit.compression import pipeline

        return pipeline.search_trial(config, run, resume=resume)

    def search_cost(self, config: CompressionConfig) -> Mapping[str, float]:
        """Return no costs: size and speed are unknown before a trial."""
        return {}
