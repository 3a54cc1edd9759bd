"""Compression as a job: a configuration, a run directory, a report with the peers beside it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import h5py
import numpy as np
from pydantic import Field, PositiveFloat

from scitoolkit.compression.bounds import Bound
from scitoolkit.compression.check import verify_file
from scitoolkit.compression.choose import Options
from scitoolkit.compression.compare import codecs_at_size, plain_codecs
from scitoolkit.compression.compress import inspect_stream
from scitoolkit.compression.files import (
    FilePlan,
    as_hdf5,
    compress_file,
    read_array,
    streams,
)
from scitoolkit.compression.missing import MissingValues
from scitoolkit.core.config import Config, DataPath, load_config
from scitoolkit.core.job import Job
from scitoolkit.core.job_config import JobConfig
from scitoolkit.core.results import Results, Table, number
from scitoolkit.core.run_directory import RunDirectory, write_atomic
from scitoolkit.io.formats import format_of

COMPRESSED = "compressed.h5"


class FileConfig(Config):
    """Which variables of which file.

    Attributes:
        path: .npy, HDF5 or NetCDF.
        variables: names; all float variables that are no coordinates unless given.
        missing: values that stand for "missing", beside those that the file itself names.
    """

    path: DataPath
    variables: list[str] = Field(default_factory=list)
    missing: list[float] = Field(default_factory=list)


class BoundConfig(Config):
    """How tightly: `mode` abs, rel, pw_rel or psnr."""

    mode: Literal["abs", "rel", "pw_rel", "psnr"] = "rel"
    value: PositiveFloat = 1e-2


class CompressionConfig(JobConfig, Options):
    """The configuration of a compression job: that of `Options`, and the keys below.

    Attributes:
        data: what to compress.
        bound: how tightly.
    """

    renamed: ClassVar[Mapping[str, str]] = {
        "base": "codec", "strictness": "guarantee", "seconds": "train_seconds",
    }  # fmt: skip
    domain: str = "compression"
    data: FileConfig
    bound: BoundConfig = BoundConfig()

    def plan(self) -> FilePlan:
        """Return what `compress_file` takes."""
        return FilePlan(
            Bound(self.bound.mode, self.bound.value),
            dict.fromkeys(self.data.variables),
            Options(
                codec=self.codec, enhancer=self.enhancer, guarantee=self.guarantee,
                train_seconds=self.train_seconds, objective=self.objective,
            ),
            MissingValues.of(self.data.missing),
        )  # fmt: skip


class CompressionJob(Job):
    """Compression of one file."""

    config_class: ClassVar[type[CompressionConfig]] = CompressionConfig

    def check(self, config: CompressionConfig) -> Mapping[str, Any]:
        """Open the file and name what would be compressed; write nothing."""
        from scitoolkit.compression.files import wanted_variables

        return {"path": str(config.data.path), "variables": wanted_variables(
            config.data.path, config.plan())}  # fmt: skip

    def train(self, config: CompressionConfig, run: RunDirectory, *, resume: bool = False) -> None:
        """Write the compressed file into the run; a resumed run starts anew, as it is short."""
        records = compress_file(config.data.path, run.path / COMPRESSED, config.plan())
        write_atomic(run.path / "records.json", json.dumps(records, indent=1) + "\n")

    def evaluate(self, directory: Path, data: Path | None = None) -> Results:
        """Verify against the original, and compare with the plain codecs at the same size."""
        directory = Path(directory)
        config = load_config(CompressionConfig, directory / "config.yaml")
        source = config.data.path
        if data is not None:
            target = directory / "other.h5"
            try:
                compress_file(data, target, config.plan())
                return _results(config, target, data)
            finally:
                target.unlink(missing_ok=True)
        results = _results(config, directory / COMPRESSED, source)
        results.write(directory)
        return results

    def predict(self, directory: Path, source: Path, output: Path) -> None:
        """Compress another file as the run's configuration says."""
        config = load_config(CompressionConfig, Path(directory) / "config.yaml")
        compress_file(source, output, config.plan())

    def search_trial(
        self, config: CompressionConfig, run: RunDirectory, *, resume: bool = False
    ) -> Mapping[str, float]:
        """Compress, measure, and return figures that compare codecs and bounds.

        `accuracy_gain` is log2(standard deviation / RMSE) - bits per value (Lindstrom 2017,
        "Error distributions of lossy floating-point compressors"), the mean over variables: the
        bits per value that the compressor saves over coding independent values.
        """
        del resume  # too short to be continued
        self.train(config, run)
        target = run.path / COMPRESSED
        checked = {found["name"]: found for found in verify_file(target, config.data.path)}
        gains, size = [], 0
        for name, stream in streams(target):
            values = _original(config.data.path, name)
            bits, size = 8 * len(stream) / max(values.size, 1), size + len(stream)
            missing = MissingValues.from_header(inspect_stream(stream))
            values = values[~missing.where(values)].astype(np.float64)
            quality = checked[name]["psnr"]  # 20 log10(range / RMSE)
            if values.size and np.isfinite(quality):
                per_range = np.log2(values.std() / np.ptp(values))
                gains.append(float(per_range + quality / (20 * np.log10(2)) - bits))
        return {
            "accuracy_gain": float(np.mean(gains)) if gains else 0.0,
            "psnr": min(found["psnr"] for found in checked.values()),
            "bytes": size,
        }

    def search_cost(self, config: CompressionConfig) -> Mapping[str, float]:
        """Return nothing: size and speed are known only afterwards."""
        return {}


def _results(config: CompressionConfig, compressed: Path, source: Path) -> Results:
    checked = {record["name"]: record for record in verify_file(compressed, source)}
    runnable, not_run = plain_codecs()
    rows: list[list[float | int | str | None]] = []
    gains = []
    for name, stream in streams(compressed):
        original, found = _original(source, name), checked[name]
        missing = MissingValues.from_header(inspect_stream(stream))
        peers = codecs_at_size(original, len(stream), missing=missing)
        gains += [found["psnr"] - max(peers.values())] if peers else []
        rows.append([
            name, original.nbytes / len(stream), len(stream), number(found["psnr"]),
            found["max_error"] / found["allowed"] if found["allowed"] else None,
            *map(number, peers.values()), number(gains[-1]) if peers else None,
        ])  # fmt: skip
    share = max((r["max_error"] / r["allowed"] for r in checked.values() if r["allowed"]),
                default=0.0)  # fmt: skip
    ratio = source.stat().st_size / compressed.stat().st_size
    metrics: dict[str, float | int | str | None] = {
        "ratio": ratio, "largest_error_over_bound": share,
        "gain_db_min": number(min(gains)) if gains else None,
        "variables": len(rows), "broken": sum(not r["holds"] for r in checked.values()),
    }  # fmt: skip
    table = Table(
        title="Each variable, and the plain codecs at the same number of bytes",
        columns=["variable", "ratio", "bytes", "PSNR (dB)", "max error / bound",
                 *(f"{peer.upper()} (dB)" for peer in runnable), "gain over the best (dB)"],
        rows=rows, note=_note(runnable, not_run),
    )  # fmt: skip
    return Results(
        title=f"Compression of {source.name}, {config.bound.mode} {config.bound.value:g}",
        summary=[
            f"{len(rows)} variables; the file is {ratio:.1f} times smaller.",
            f"The largest error is {share:.3f} of the bound, measured on every point.",
        ],
        metrics=metrics, units={"gain_db_min": "dB"}, tables=[table],
    )  # fmt: skip


def _note(runnable: Iterable[str], not_run: Mapping[str, str]) -> str:
    """Return the sentence below the table: how codecs were run, and which could not be."""
    parts = ["Codecs at their best over a grid of bounds; no value: none fits in that many bytes."]
    if not list(runnable):
        parts = ["No other codec is installed to compare with."]
    if not_run:
        parts.append("Not run: " + ", ".join(f"{n} ({why})" for n, why in not_run.items()) + ".")
    return " ".join(parts)


def _original(source: Path, name: str) -> np.ndarray:
    if format_of(source).single_array:
        return np.asarray(read_array(source))
    with as_hdf5(source) as file:
        item = file[name]
        assert isinstance(item, h5py.Dataset)
        return item[...]
