"""Predicted step times on up to 4,096 ranks and their error where steps were measured.

The components of a step are measured separately, with the same number of busy processes, before and
after the training whose step is predicted. Beyond the measured numbers of processes each rank is
assumed to have a core, so the rates come from the largest measured number that fits the cores.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scitoolkit.core.errors import ConfigError
from scitoolkit.scaling.config import ScalingConfig, case_settings
from scitoolkit.scaling.costs import Interconnect, StepModel, whole_size

MOST_RANKS = 4096
# Copies of all gradients or weights per step in addition to the exchange: into buckets; for
# sharding strategies into rows, parts and weights.
COPIES, SHARDED_COPIES = 1, 3
# Largest share of the cores that other programs may use for measured times to be meaningful.
MOST_LOAD = 0.25


def predicted(
    config: ScalingConfig, files: Mapping[int, Mapping[str, Any]], cores: int, load: float = 0.0
) -> dict[str, Any]:
    """Predict the seconds of a step by strategy and number of ranks, with the error if measured.

    The number of samples per rank is fixed (weak scaling).

    Args:
        config: configuration of the measurements.
        files: results of `scaling.measure` by number of processes.
        cores: cores of this machine.
        load: load average of this machine before the measurements.

    Returns:
        "seconds" by strategy and ranks; "efficiency", the time of a step on one rank over
        "seconds"; "error", predicted over measured time minus one, by strategy and ranks;
        "from_processes", the number of processes whose rates are used for the extrapolation;
        "doubts", by ranks, why a measured step is not a valid test of the prediction ("beyond" for
        the extrapolation).

    Raises:
        ConfigError: only one process was measured.
    """
    measured = [ranks for ranks in sorted(files) if ranks > 1]
    if not measured:
        raise ConfigError(
            "nothing was measured on several processes",
            where="--nproc",
            allowed="2 or more",
            fix="--nproc 4",
        )
    base = max((n for n in measured if n <= cores), default=measured[0])
    alone = step_seconds(files[1]["rates"], config.samples) + files[1]["rates"]["optimizer_seconds"]
    powers = [2**k for k in range(1, MOST_RANKS.bit_length())]
    out: dict[str, Any] = {
        "seconds": {},
        "efficiency": {},
        "error": {},
        "from_processes": base,
        "doubts": doubts(measured, base, cores, load),
    }
    for case in config.strategies:
        seconds = {}
        for ranks in sorted({*powers, *measured}):
            nearest = ranks if ranks in measured else base
            file = files[nearest]
            rates = file["cases"][case]["rates"] if ranks in measured else file["rates"]
            model = step_model(config, case, file, rates, files[1], cores)
            networks = _networks(config, rates, model.between, ranks > nearest)
            seconds[ranks] = model.seconds(ranks, networks)
        out["seconds"][case] = {str(ranks): value for ranks, value in seconds.items()}
        out["efficiency"][case] = {str(ranks): alone / value for ranks, value in seconds.items()}
        out["error"][case] = {
            str(ranks): seconds[ranks] / files[ranks]["cases"][case]["step_seconds"] - 1
            for ranks in measured
        }
    return out


def doubts(measured: list[int], base: int, cores: int, load: float) -> dict[str, str]:
    """Return, by number of processes, why measured times are not a valid test of a prediction.

    Example:
        >>> doubts([2, 4], 2, 2, 0.0)
        {'4': '4 processes share 2 cores'}
    """
    busy = f"load {load:.1f} on {cores} cores before the start: other programs were running"
    out: dict[str, str] = {}
    for ranks in measured:
        reasons = [f"{ranks} processes share {cores} cores"] if ranks > cores else []
        reasons += [busy] if load > MOST_LOAD * cores else []
        if reasons:
            out[str(ranks)] = "; ".join(reasons)
    if str(base) in out:
        out["beyond"] = out[str(base)]
    return out


def step_model(
    config: ScalingConfig,
    case: str,
    file: Mapping[str, Any],
    rates: Mapping[str, Any],
    lone: Mapping[str, Any],
    cores: int,
) -> StepModel:
    """Return the cost model of a step from counted calls and bytes and measured rates.

    Args:
        config: configuration of the measurements.
        case: a strategy.
        file: results of the processes whose calls and bytes were counted.
        rates: measured rates to use.
        lone: results of one process, from which the overhead of the trainer's loop is taken.
        cores: cores of this machine.
    """
    ranks = file["ranks"]
    compute = step_seconds(rates, config.samples)
    sharded = case_settings(case)["strategy"] == "sharded"
    split = lone["cases"]["single"]["split"]
    slower = compute / step_seconds(lone["rates"], config.samples)
    return StepModel(
        compute=compute,
        optimizer=rates["optimizer_seconds"],
        fixed=rates["sharded_fixed_seconds" if sharded else "optimizer_fixed_seconds"],
        copies=(SHARDED_COPIES if sharded else COPIES) * rates["copy_seconds"],
        loop=slower * (split["data"] + split["other"]),
        sharded=sharded,
        collectives={
            name: (traffic["calls"], whole_size(name, traffic["bytes"], ranks))
            for name, traffic in file["cases"][case]["traffic"].items()
        },
        # gloo communicates on the CPU: it overlaps only if each rank has a spare core.
        overlaps=cores >= 2 * ranks,
    )


def step_seconds(rates: Mapping[str, Any], samples: int) -> float:
    """Return the seconds of forward and backward pass over a rank's samples."""
    return float(rates["step_seconds"] + samples * rates["sample_seconds"])


def _networks(
    config: ScalingConfig, rates: Mapping[str, Any], between: float, beyond: bool
) -> dict[str, Interconnect]:
    """Return the network by collective: measured, or as configured for the extrapolation.

    Args:
        config: contains the interconnect to predict for.
        rates: measured rates of this machine.
        between: seconds of arithmetic between two collectives.
        beyond: whether the number of processes exceeds those measured.
    """
    little, more = rates["networks"]["little"], rates["networks"]["more"]
    span = max(more["seconds"] - little["seconds"], 1e-9)
    share = min(max((between - little["seconds"]) / span, 0.0), 1.0)
    networks = {}
    for name, one in little["collectives"].items():
        other = more["collectives"].get(name, one)
        latency, per_byte = (
            (1 - share) * one[key] + share * other[key] for key in ("latency", "seconds_per_byte")
        )
        if beyond and config.latency_us is not None:
            latency = config.latency_us * 1e-6
        if beyond and config.gb_per_s is not None:
            per_byte = 1e-9 / config.gb_per_s
        networks[name] = Interconnect(latency, per_byte)
    return networks
