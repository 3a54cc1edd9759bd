"""Steps on up to 4,096 ranks from measured latency, bandwidth and arithmetic, and the error."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from scitoolkit.core.errors import ConfigError
from scitoolkit.scaling.config import ScalingConfig, case_settings
from scitoolkit.scaling.costs import Network, StepModel, whole_size

MOST_RANKS = 4096


def predicted(config: ScalingConfig, files: Mapping[int, Mapping[str, Any]]) -> dict[str, Any]:
    """Return predicted seconds of a step by strategy and ranks, and the error where measured.

    The samples of a rank stay as they are (weak scaling). Rates are those with as many ranks at
    work on this machine; beyond the largest number measured they are that number's.

    Args:
        config: what was measured.
        files: by number of processes, what `scaling.measure` wrote.

    Returns:
        "seconds" (by strategy and ranks), "efficiency" (of these, one rank's compute over it)
        and "error" (predicted over measured less one, by strategy and ranks).

    Raises:
        ConfigError: one process, which tells nothing of a network.
    """
    measured = [ranks for ranks in sorted(files) if ranks > 1]
    if not measured:
        raise ConfigError(
            "nothing was measured on several processes", where="--nproc", allowed="2 and more",
            fix="--nproc 4",
        )  # fmt: skip
    alone = _compute(files[1]["rates"], config.samples) + files[1]["rates"]["optimizer_seconds"]
    powers = [2**k for k in range(1, MOST_RANKS.bit_length())]
    out: dict[str, Any] = {"seconds": {}, "efficiency": {}, "error": {}}
    for case in config.strategies:
        seconds = {}
        for ranks in sorted({*powers, *measured}):
            known = max((n for n in measured if n <= ranks), default=measured[0])
            model = step_model(config, case, files[known])
            network = _network(config, files[known]["rates"]["network"], ranks > known)
            seconds[ranks] = model.seconds(ranks, network)
        out["seconds"][case] = {str(ranks): value for ranks, value in seconds.items()}
        out["efficiency"][case] = {str(ranks): alone / value for ranks, value in seconds.items()}
        out["error"][case] = {
            str(ranks): seconds[ranks] / files[ranks]["cases"][case]["step_seconds"] - 1
            for ranks in measured
        }
    return out


def step_model(config: ScalingConfig, case: str, file: Mapping[str, Any]) -> StepModel:
    """Return the parts of a step: calls and bytes as counted, seconds as measured by themselves."""
    rates, ranks = file["rates"], file["ranks"]
    return StepModel(
        compute=_compute(rates, config.samples),
        optimizer=rates["optimizer_seconds"],
        sharded=case_settings(case)["strategy"] == "sharded",
        collectives={
            name: (traffic["calls"], whole_size(name, traffic["bytes"], ranks))
            for name, traffic in file["cases"][case]["traffic"].items()
        },
        # gloo exchanges on the CPU: hidden only where a rank has a core to spare.
        overlaps=(os.cpu_count() or 1) >= 2 * ranks,
    )


def _compute(rates: Mapping[str, Any], samples: int) -> float:
    return float(rates["step_seconds"] + samples * rates["sample_seconds"])


def _network(config: ScalingConfig, here: Mapping[str, float], beyond: bool) -> Network:
    """Return the network: the one asked for beyond what was measured, else this machine's."""
    latency, per_byte = here["latency"], here["seconds_per_byte"]
    if beyond and config.latency_us is not None:
        latency = config.latency_us * 1e-6
    if beyond and config.gb_per_s is not None:
        per_byte = 1e-9 / config.gb_per_s
    return Network(latency, per_byte)
