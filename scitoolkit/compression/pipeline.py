"""Compression into a run directory, and its report with the plain codecs at the same size."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np

from scitoolkit.compression.bounds import Bound
from scitoolkit.compression.check import compared, pairs, verify_file
from scitoolkit.compression.choose import Options
from scitoolkit.compression.compare import codecs_at_size, plain_codecs
from scitoolkit.compression.compress import decompress, inspect_stream
from scitoolkit.compression.config import CompressionConfig
from scitoolkit.compression.files import (
    FilePlan,
    as_hdf5,
    compress_file,
    holds_one_array,
    read_array,
    streams,
    wanted_variables,
)
from scitoolkit.compression.missing import MissingValues
from scitoolkit.compression.pictures import MOST_VARIABLES, pictures
from scitoolkit.core.config import load_config
from scitoolkit.core.results import FIELDS_NAME, Results, Table, Verdict, number
from scitoolkit.core.run_directory import RunDirectory, write_atomic
from scitoolkit.io.fields import write_fields

if TYPE_CHECKING:
    import xarray as xr

OURS = "scitoolkit"


def plan_of(config: CompressionConfig) -> FilePlan:
    """Return what `compress_file` takes."""
    return FilePlan(
        Bound(config.bound.mode, config.bound.value) if config.bound else None,
        dict.fromkeys(config.data.variables),
        Options(
            codec=config.codec, enhancer=config.enhancer, guarantee=config.guarantee,
            train_seconds=config.train_seconds, objective=config.objective,
        ),
        MissingValues.of(config.data.missing),
        tuple(config.quantities),
        tuple(config.data.shape) if config.data.shape else None,
        config.container,
    )  # fmt: skip


def compressed_name(source: Path) -> str:
    """Return the name that the compressed file has in a run directory."""
    return "compressed.zarr" if is_store(source) else "compressed.h5"


def check(config: CompressionConfig) -> Mapping[str, Any]:
    """Open the file and name what would be compressed; write nothing."""
    return {"path": str(config.data.path), "variables": wanted_variables(
        config.data.path, plan_of(config))}  # fmt: skip


def train(config: CompressionConfig, run: RunDirectory, *, resume: bool = False) -> None:
    """Write the compressed file into the run; a resumed run starts anew, as it is short."""
    target = run.path / compressed_name(config.data.path)
    records = compress_file(config.data.path, target, plan_of(config))
    write_atomic(run.path / "records.json", json.dumps(records, indent=1) + "\n")


def evaluate(directory: Path, data: Path | None = None) -> Results:
    """Verify against the original, and compare with the plain codecs at the same size."""
    directory = Path(directory)
    config = load_config(CompressionConfig, directory / "config.yaml")
    source = config.data.path
    if data is not None:
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            target = Path(scratch) / compressed_name(data)
            compress_file(data, target, plan_of(config))
            return _results(config, target, data)[0]
    results, fields = _results(config, directory / compressed_name(source), source)
    write_fields(fields, directory / FIELDS_NAME)
    results.write(directory)
    return results


def predict(directory: Path, source: Path, output: Path) -> None:
    """Compress another file as the run's configuration says."""
    config = load_config(CompressionConfig, Path(directory) / "config.yaml")
    compress_file(source, output, plan_of(config))


def search_trial(
    config: CompressionConfig, run: RunDirectory, *, resume: bool = False
) -> Mapping[str, float]:
    """Compress, measure, and return figures that compare codecs and bounds.

    `accuracy_gain` is log2(standard deviation / RMSE) - bits per value (Lindstrom 2017,
    "Error distributions of lossy floating-point compressors"), the mean over variables: the
    bits per value that the compressor saves over coding independent values.
    """
    del resume  # too short to be continued
    train(config, run)
    target, gains, reached, size = run.path / compressed_name(config.data.path), [], [], 0
    for one, original, known in pairs(target, config.data.path):
        stored = int(one.about["bytes"])
        bits, size = 8 * stored / max(original.size, 1), size + stored
        found = compared(one.name, one.about, one.decode(), original, known)
        reached.append(found["psnr"])  # 20 log10(range / RMSE)
        missing = known | MissingValues.from_header(one.about)
        values = original[~missing.where(original)].astype(np.float64)
        if values.size and np.isfinite(found["psnr"]):
            per_range = np.log2(values.std() / np.ptp(values))
            gains.append(float(per_range + found["psnr"] / (20 * np.log10(2)) - bits))
    return {
        "accuracy_gain": float(np.mean(gains)) if gains else 0.0,
        "psnr": min(reached),
        "bytes": size,
    }


def _results(
    config: CompressionConfig, compressed: Path, source: Path
) -> tuple[Results, xr.Dataset]:
    """Return the results, and the fields that their maps show."""
    checked = {record["name"]: record for record in verify_file(compressed, source)}
    runnable, not_run = plain_codecs()
    rows: list[list[float | int | str | None]] = []
    gains: list[float] = []
    verdicts: list[Verdict | None] = []
    shown: dict[str, tuple[np.ndarray, np.ndarray, float]] = {}
    for name, stream in streams(compressed):
        original, found = (
            _original(source, name, tuple(inspect_stream(stream)["shape"])),
            checked[name],
        )
        if len(shown) < MOST_VARIABLES:
            shown[name] = original, decompress(stream), float(found["allowed"] or 0.0)
        missing = MissingValues.from_header(inspect_stream(stream))
        peers = codecs_at_size(original, len(stream), missing=missing)
        if peers:
            gains.append(found["psnr"] - max(peers.values()))
            named = {OURS: found["psnr"], **{peer.upper(): v for peer, v in peers.items()}}
            verdicts.append(Verdict.among(
                {peer: number(v) for peer, v in named.items()}, OURS,
                f"PSNR of {name} at equal bytes", unit="dB", better="max", rate=False,
            ))  # fmt: skip
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
    figures, fields = pictures(shown)
    return Results(
        title=f"Compression of {source.name}, {_asked(config)}",
        verdict=verdicts[int(np.argmin(gains))] if gains else None,
        summary=[
            f"{len(rows)} variables; the file is {ratio:.1f} times smaller.",
            f"The largest error is {share:.3f} of the bound, measured on every point.",
        ],
        metrics=metrics, units={"gain_db_min": "dB"}, tables=[table], figures=figures,
    ), fields  # fmt: skip


def _asked(config: CompressionConfig) -> str:
    own = [f"{config.bound.mode} {config.bound.value:g}"] if config.bound else []
    return "; ".join([*own, *config.quantities])


def _note(runnable: Iterable[str], not_run: Mapping[str, str]) -> str:
    """Return the sentence below the table: how codecs were run, and which could not be."""
    parts = ["Codecs at their best over a grid of bounds; no value: none fits in that many bytes."]
    if not list(runnable):
        parts = ["No other codec is installed to compare with."]
    if not_run:
        parts.append("Not run: " + ", ".join(f"{n} ({why})" for n, why in not_run.items()) + ".")
    return " ".join(parts)


def _original(source: Path, name: str, shape: tuple[int, ...]) -> np.ndarray:
    if holds_one_array(source):
        return np.asarray(read_array(source, shape))
    with as_hdf5(source) as file:
        item = file[name]
        assert isinstance(item, h5py.Dataset)
        return item[...]
