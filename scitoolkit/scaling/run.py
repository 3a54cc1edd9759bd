"""Driver of `scitoolkit bench training`: starts the ranks, merges their results, writes a run."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from scitoolkit.core.errors import BackendError, ConfigError
from scitoolkit.core.files import write_atomic
from scitoolkit.core.processes import available_cores, world_size
from scitoolkit.core.run_directory import RunDirectory
from scitoolkit.scaling.config import ScalingConfig
from scitoolkit.scaling.prediction import predicted
from scitoolkit.scaling.report import results_of
from scitoolkit.training.launch import launch

FIGURES = "figures.json"


def bench_training(config: ScalingConfig, root: Path) -> tuple[RunDirectory, dict[str, Any]]:
    """Measure on 1, 2, ... processes and write figures.json and results.json into a new run.

    Args:
        config: configuration of the measurements.
        root: folder of the run directories.

    Returns:
        The run and its figures.

    Raises:
        ConfigError: `processes` is 1, or this process is one of several ranks.
        BackendError: a rank failed; its error is on stderr.
    """
    if world_size() > 1:
        raise ConfigError(
            "bench training starts its processes itself",
            where="torchrun or srun",
            fix="scitoolkit bench training --nproc N, without a launcher",
        )
    if config.processes < 2:
        raise ConfigError(
            "a single process does not communicate",
            where="--nproc",
            allowed="2 or more",
            fix="--nproc 4",
        )
    load = os.getloadavg()[0]
    run = RunDirectory.create(root, "bench_training", config)
    for ranks in config.counts:
        code = launch(ranks, [str(run.path)], module="scitoolkit.scaling.measure")
        if code:
            raise BackendError(
                f"the launch with {ranks} processes failed with exit code {code}",
                where=str(run.path),
            )
    figures = figures_of(config, run.path, load)
    write_atomic(run.path / FIGURES, json.dumps(figures, indent=1))
    results_of(config, figures).write(run.path)
    return run, figures


def figures_of(config: ScalingConfig, folder: Path, load: float) -> dict[str, Any]:
    """Merge the files written by the ranks and add the predictions.

    Args:
        config: configuration of the measurements.
        folder: folder of the files.
        load: load average of the machine before the measurements.
    """
    from scitoolkit.scaling.workload import mesh_plan

    files = {n: json.loads((folder / f"{n}.json").read_text()) for n in config.counts}
    most, cores = files[config.processes], available_cores()
    rates = {str(n): file["rates"] for n, file in files.items()}
    cases = {"single": files[1]["cases"]["single"], **most["cases"]}
    return {
        "processes": config.processes,
        "parameters": most["parameters"],
        "activation_bytes": most["rates"]["activation_bytes"] * config.samples,
        "machine": {"cores": cores, "load": load},
        "metg": {**_with(files[1]["metg"], config), **most["metg"]},
        "cases": cases,
        "rates": rates,
        "prediction": predicted(config, files, cores, load),
        "mesh_plan": mesh_plan(
            config.width, config.depth, config.samples * config.processes, config.processes
        ),
    }


def _with(lone: dict[str, Any], config: ScalingConfig) -> dict[str, Any]:
    """Add missing patterns to METG of one process, which has only the pattern without messages."""
    none: dict[str, Any] = {"metg50_seconds": None, "samples": [], "seconds": [], "efficiency": []}
    return {
        case: {pattern: by_pattern.get(pattern, none) for pattern in config.patterns}
        for case, by_pattern in lone.items()
    }


def summary(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of a run for `--json`, in microseconds and bytes."""
    cases = figures["cases"]
    return {
        "processes": figures["processes"],
        "metg50_us": {
            case: {p: _microseconds(one["metg50_seconds"]) for p, one in by_pattern.items()}
            for case, by_pattern in figures["metg"].items()
        },
        "memory_bytes_per_rank": {case: measured["memory"] for case, measured in cases.items()},
        "bytes_per_step": {
            case: {name: traffic["bytes"] for name, traffic in measured["traffic"].items()}
            for case, measured in cases.items()
        },
        "time_split_us": {
            case: {part: 1e6 * seconds for part, seconds in measured["split"].items()}
            for case, measured in cases.items()
        },
        "step_us": {case: 1e6 * measured["step_seconds"] for case, measured in cases.items()},
        "rates": figures["rates"],
        "predicted_seconds": figures["prediction"]["seconds"],
        "mesh_plan": figures["mesh_plan"],
        "prediction_error": figures["prediction"]["error"],
        "prediction_doubts": figures["prediction"]["doubts"],
        "predicted_from_processes": figures["prediction"]["from_processes"],
        "machine": figures["machine"],
    }


def _microseconds(seconds: float | None) -> float | None:
    return None if seconds is None else 1e6 * seconds
