"""Steps on up to 4,096 ranks from measured latency, bandwidth and arithmetic, and the error.

What a step is made of is measured by itself, with as many processes at work as the step has, before
and after the training whose step is predicted. Beyond the processes that were measured each rank is
taken to have a core, so the rates come from the largest number of processes that have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scitoolkit.core.errors import ConfigError
from scitoolkit.scaling.config import ScalingConfig, case_settings
from scitoolkit.scaling.costs import Network, StepModel, whole_size

MOST_RANKS = 4096
# Copies of all gradients or weights in a step beside the exchange: into buckets; into rows, parts
# and weights of the strategies that shard the optimizer alone or all.
COPIES, SHARDED_COPIES = 1, 3
# Of the cores, what other programs may use before times say more of them than of the training.
MOST_LOAD = 0.25


def predicted(
    config: ScalingConfig, files: Mapping[int, Mapping[str, Any]], cores: int, load: float = 0.0
) -> dict[str, Any]:
    """Return predicted seconds of a step by strategy and ranks, and the error where measured.

    The samples of a rank stay as they are (weak scaling).

    Args:
        config: what was measured.
        files: by number of processes, what `scaling.measure` wrote.
        cores: of this machine.
        load: of this machine before.

    Returns:
        "seconds" (by strategy and ranks), "efficiency" (of these, one rank's compute over it),
        "error" (predicted over measured less one, by strategy and ranks), "from_processes" (whose
        rates are used beyond what was measured) and "doubts" (by ranks, why a measured step is no
        test of the prediction; "beyond" for what was not measured).

    Raises:
        ConfigError: one process, which tells nothing of a network.
    """
    measured = [ranks for ranks in sorted(files) if ranks > 1]
    if not measured:
        raise ConfigError(
            "nothing was measured on several processes", where="--nproc", allowed="2 and more",
            fix="--nproc 4",
        )  # fmt: skip
    base = max((n for n in measured if n <= cores), default=measured[0])
    alone = step_seconds(files[1]["rates"], config.samples) + files[1]["rates"]["optimizer_seconds"]
    powers = [2**k for k in range(1, MOST_RANKS.bit_length())]
    out: dict[str, Any] = {
        "seconds": {}, "efficiency": {}, "error": {}, "from_processes": base,
        "doubts": doubts(measured, base, cores, load),
    }  # fmt: skip
    for case in config.strategies:
        seconds = {}
        for ranks in sorted({*powers, *measured}):
            known = ranks if ranks in measured else base
            file = files[known]
            rates = file["cases"][case]["rates"] if ranks in measured else file["rates"]
            model = step_model(config, case, file, rates, files[1], cores)
            networks = _networks(config, rates, model.between, ranks > known)
            seconds[ranks] = model.seconds(ranks, networks)
        out["seconds"][case] = {str(ranks): value for ranks, value in seconds.items()}
        out["efficiency"][case] = {str(ranks): alone / value for ranks, value in seconds.items()}
        out["error"][case] = {
            str(ranks): seconds[ranks] / files[ranks]["cases"][case]["step_seconds"] - 1
            for ranks in measured
        }
    return out


def doubts(measured: list[int], base: int, cores: int, load: float) -> dict[str, str]:
    """Return why times of measured processes are no test of a prediction, where they are not.

    Example:
        >>> doubts([2, 4], 2, 2, 0.0)
        {'4': '4 processes share 2 cores'}
    """
    busy = f"load {load:.1f} on {cores} cores before: others take turns"
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
    config: ScalingConfig, case: str, file: Mapping[str, Any], rates: Mapping[str, Any],
    lone: Mapping[str, Any], cores: int,
) -> StepModel:  # fmt: skip
    """Return the parts of a step: calls and bytes as counted, seconds as measured by themselves.

    Args:
        config: what was measured.
        case: a strategy.
        file: of the processes whose calls and bytes were counted.
        rates: that are used.
        lone: the file of one process, whose loop beside arithmetic and optimizer all have.
        cores: of this machine.
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
        # gloo exchanges on the CPU: hidden only where a rank has a core to spare.
        overlaps=cores >= 2 * ranks,
    )


def step_seconds(rates: Mapping[str, Any], samples: int) -> float:
    """Return the seconds of forward and backward pass of a rank's samples."""
    return float(rates["step_seconds"] + samples * rates["sample_seconds"])


def _networks(
    config: ScalingConfig, rates: Mapping[str, Any], between: float, beyond: bool
) -> dict[str, Network]:
    """Return the networks: the one asked for beyond what was measured, else this machine's.

    Args:
        config: has the network that is asked for.
        rates: of this machine.
        between: seconds of arithmetic between two collectives.
        beyond: whether there are more processes than were measured.
    """
    little, more = rates["networks"]["little"], rates["networks"]["more"]
    span = max(more["seconds"] - little["seconds"], 1e-9)
    share = min(max((between - little["seconds"]) / span, 0.0), 1.0)
    found = {}
    for name, one in little["collectives"].items():
        other = more["collectives"].get(name, one)
        latency, per_byte = (
            (1 - share) * one[key] + share * other[key] for key in ("latency", "seconds_per_byte")
        )
        if beyond and config.latency_us is not None:
            latency = config.latency_us * 1e-6
        if beyond and config.gb_per_s is not None:
            per_byte = 1e-9 / config.gb_per_s
        found[name] = Network(latency, per_byte)
    return found
