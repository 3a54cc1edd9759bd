"""Stages of a compression job: compression into a run directory, and the report."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from scitoolkit.compression.bounds import Bound
from scitoolkit.compression.check import examine
from scitoolkit.compression.choose import Options
from scitoolkit.compression.config import CompressionConfig
from scitoolkit.compression.files import FilePlan, compress_file, wanted_variables
from scitoolkit.compression.missing import MissingValues
from scitoolkit.compression.report import results_of
from scitoolkit.compression.series import NetworkSeries
from scitoolkit.core.config import load_config
from scitoolkit.core.files import write_atomic
from scitoolkit.core.results import FIELDS_NAME, Results
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.io.compressed import is_store
from scitoolkit.io.fields import write_fields


def plan_of(config: CompressionConfig) -> FilePlan:
    """Return the plan for `compress_file`."""
    return FilePlan(
        Bound(config.bound.mode, config.bound.value) if config.bound else None,
        dict.fromkeys(config.data.variables),
        Options(
            codec=config.codec,
            enhancer=config.enhancer,
            guarantee=config.guarantee,
            train_seconds=config.train_seconds,
            objective=config.objective,
        ),
        MissingValues.of(config.data.missing),
        tuple(config.quantities),
        tuple(config.data.shape) if config.data.shape else None,
        config.container,
        config.networks,
    )


def compressed_name(source: Path) -> str:
    """Return the name of the compressed file in a run directory."""
    return "compressed.zarr" if is_store(source) else "compressed.h5"


def check(config: CompressionConfig) -> Mapping[str, Any]:
    """Open the file and return the variables that would be compressed, without writing."""
    return {
        "path": str(config.data.path),
        "variables": wanted_variables(config.data.path, plan_of(config)),
    }


def train(config: CompressionConfig, run: RunDirectory, *, resume: bool = False) -> None:
    """Write the compressed file into the run; a resumed run starts again, as runs are short."""
    target = run.path / compressed_name(config.data.path)
    records = compress_file(config.data.path, target, plan_of(config))
    if config.networks is not None:
        NetworkSeries.open(config.networks).account(files=1)
    write_atomic(run.path / "records.json", json.dumps(records, indent=1) + "\n")


def evaluate(directory: Path, data: Path | None = None) -> Results:
    """Verify against the original, and compare with the baseline codecs at the same size."""
    directory = Path(directory)
    config = load_config(CompressionConfig, directory / "config.yaml")
    source = config.data.path
    if data is not None:
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            target = Path(scratch) / compressed_name(data)
            compress_file(data, target, plan_of(config))
            return results_of(target, data, _asked(config))[0]
    compressed = directory / compressed_name(source)
    results, fields = results_of(compressed, source, _asked(config))
    if config.networks is not None:
        results.summary.append(NetworkSeries.open(config.networks).account().sentence)
    write_fields(fields, directory / FIELDS_NAME)
    results.write(directory)
    return results


def predict(directory: Path, source: Path, output: Path) -> None:
    """Compress another file with the run's configuration."""
    config = load_config(CompressionConfig, Path(directory) / "config.yaml")
    compress_file(source, output, plan_of(config))


def search_trial(
    config: CompressionConfig, run: RunDirectory, *, resume: bool = False
) -> Mapping[str, float]:
    """Compress a file and return `accuracy_gain`, `psnr` (dB, worst variable) and `bytes`.

    `accuracy_gain` is the mean over variables of log2(standard deviation / RMSE) - bits per value:
    the bits per value that the compressor saves over coding independent values.

    Source:
        Lindstrom 2017, "Error distributions of lossy floating-point compressors".
    """
    del resume  # trials are too short to resume
    train(config, run)
    target = run.path / compressed_name(config.data.path)
    gains, reached, size = [], [], 0
    for one in examine(target, config.data.path):
        stored, psnr = int(one.stored.about["bytes"]), one.record["psnr"]
        bits, size = 8 * stored / max(one.original.size, 1), size + stored
        reached.append(psnr)  # 20 log10(range / RMSE)
        missing = one.missing | MissingValues.from_header(one.stored.about)
        values = one.original[~missing.where(one.original)].astype(np.float64)
        if values.size and np.isfinite(psnr):
            per_range = np.log2(values.std() / np.ptp(values))
            gains.append(float(per_range + psnr / (20 * np.log10(2)) - bits))
    return {
        "accuracy_gain": float(np.mean(gains)) if gains else 0.0,
        "psnr": min(reached),
        "bytes": size,
    }


def _asked(config: CompressionConfig) -> str:
    bound = [f"{config.bound.mode} {config.bound.value:g}"] if config.bound else []
    return "; ".join([*bound, *config.quantities])
