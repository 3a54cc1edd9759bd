"""The results of `scitoolkit bench training` as tables and figures of a report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from scitoolkit.core.results import Bars, Figure, Lines, Results, Series, Table, Verdict
from scitoolkit.scaling.config import ScalingConfig

PARTS = ("compute", "exchange", "waiting", "optimizer", "data", "other")


def results_of(config: ScalingConfig, figures: Mapping[str, Any]) -> Results:
    """Return the report of the figures from `scaling.run.figures_of`."""
    most = config.processes
    steps = {case: figures["cases"][case]["step_seconds"] for case in config.strategies}
    best = min(steps, key=lambda case: steps[case])
    errors = [
        abs(e) for by_ranks in figures["prediction"]["error"].values() for e in by_ranks.values()
    ]
    load = figures["machine"]["load"]
    return Results(
        title=f"Training on {most} processes",
        verdict=Verdict.among(
            {case: 1e3 * seconds for case, seconds in steps.items()},
            best,
            f"step of {best}",
            unit="ms",
        ),
        summary=[
            f"{figures['parameters']} parameters in {config.depth} layers, {config.samples} samples"
            f" per rank and step, {most} processes on {figures['machine']['cores']} cores, load"
            f" {load:.1f} at the start.",
            _mesh(figures["mesh_plan"]),
            f"Predicted and measured step times differ by at most {100 * max(errors):.0f} %.",
        ],
        metrics={"largest error of the prediction": max(errors)},
        tables=[
            _split(figures),
            _memory(figures),
            _traffic(figures),
            _metg(figures),
            _errors(figures),
            _rates(figures),
        ],
        figures=_figures(figures),
    )


def _mesh(plan: Mapping[str, Any]) -> str:
    """Return in one sentence the mesh on which a process receives least."""
    x, y, z = plan["tensor"]
    return (
        f"Of all meshes (strategy mesh), data {plan['data']}, tensor [{x}, {y}, {z}] receives "
        f"least: {plan['received_bytes'] / 1e6:.3g} MB a step for {plan['parameters_per_process']} "
        f"parameters in a process, data parallelism {plan['data_parallel_bytes'] / 1e6:.3g} MB."
    )


def _split(figures: Mapping[str, Any]) -> Table:
    return Table(
        title="Time per step by phase",
        columns=["strategy", "step (ms)", *(f"{part} (ms)" for part in PARTS)],
        rows=[
            [
                case,
                1e3 * measured["step_seconds"],
                *(1e3 * measured["split"][part] for part in PARTS),
            ]
            for case, measured in figures["cases"].items()
        ],
        note="Step: median over the steps of the slowest rank's time; phases: means over steps and "
        "ranks. Exchange is the shortest time of all ranks in a collective, waiting the additional "
        "time of the other ranks. Other: copies at the end of a step and the trainer's loop.",
    )


def _memory(figures: Mapping[str, Any]) -> Table:
    names = list(next(iter(figures["cases"].values()))["memory"])
    return Table(
        title="Memory of a rank between steps",
        columns=["strategy", *(f"{name} (MiB)" for name in names), "activations (MiB)"],
        rows=[
            [
                case,
                *(measured["memory"][name] / 2**20 for name in names),
                figures["activation_bytes"] / 2**20,
            ]
            for case, measured in figures["cases"].items()
        ],
        note="Live tensors of the rank with the most memory; other: communication buckets and the"
        " batch. Activations are held only during the step.",
    )


def _traffic(figures: Mapping[str, Any]) -> Table:
    return Table(
        title="Received traffic per rank and step",
        columns=["strategy", "collective", "bytes (KiB)", "messages", "calls", "blocked (ms)"],
        rows=[
            [
                case,
                name,
                traffic["bytes"] / 1024,
                traffic["messages"],
                traffic["calls"],
                1e3 * traffic["seconds"],
            ]
            for case, one in figures["cases"].items()
            for name, traffic in one["traffic"].items()
        ],
        note="Assuming the bandwidth-optimal algorithm of each collective; rank 0.",
    )


def _metg(figures: Mapping[str, Any]) -> Table:
    patterns = list(next(iter(figures["metg"].values())))
    return Table(
        title="METG(50 %): shortest step with 50 % efficiency",
        columns=["strategy", *(f"{pattern} (ms)" for pattern in patterns)],
        rows=[
            [case, *(_milliseconds(measured[p]["metg50_seconds"]) for p in patterns)]
            for case, measured in figures["metg"].items()
        ],
        note="Efficiency counts the arithmetic of forward and backward pass at the rate of large "
        "batches with all ranks busy. Between steps a row is sent according to the pattern of Task "
        "Bench. Empty: no measured step reached 50 %.",
        best="min",
    )


def _milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else 1e3 * seconds


def _errors(figures: Mapping[str, Any]) -> Table:
    errors = figures["prediction"]["error"]
    ranks = list(next(iter(errors.values())))
    return Table(
        title="Relative error of the predicted step time",
        columns=["strategy", *(f"{number} processes (%)" for number in ranks)],
        rows=[[case, *(100 * by_ranks[n] for n in ranks)] for case, by_ranks in errors.items()],
        note="Predicted from latency, bandwidth and arithmetic measured separately, without steps "
        "of these strategies. " + _doubts(figures["prediction"]["doubts"]),
    )


def _doubts(doubts: Mapping[str, str]) -> str:
    return " ".join(
        f"Not a valid test {'beyond' if ranks == 'beyond' else f'at {ranks}'}: {reason}."
        for ranks, reason in doubts.items()
    )


def _rates(figures: Mapping[str, Any]) -> Table:
    rows: list[list[float | int | str | None]] = []
    for ranks, rates in figures["rates"].items():
        network = rates["networks"] and rates["networks"]["little"]["collectives"][""]
        rows.append(
            [
                ranks,
                rates["flops_per_sample"] / rates["sample_seconds"] / 1e9,
                1e3 * rates["optimizer_seconds"],
                1e6 * network["latency"] if network else None,
                1e-9 / network["seconds_per_byte"]
                if network and network["seconds_per_byte"]
                else None,
            ]
        )
    return Table(
        title="Rates of this machine by number of busy processes",
        columns=[
            "processes",
            "arithmetic (GFLOP/s)",
            "AdamW (ms)",
            "latency (µs)",
            "bandwidth (GB/s)",
        ],
        rows=rows,
    )


def _figures(figures: Mapping[str, Any]) -> list[Figure]:
    efficiency = figures["prediction"]["efficiency"]
    ranks = [float(n) for n in next(iter(efficiency.values()))]
    lines = Lines(
        title="Predicted efficiency (weak scaling)",
        x=ranks,
        x_label="processes",
        y_label="step time of one process / step time",
        log_x=True,
        log_y=True,
        series=[Series(label=case, y=list(line.values())) for case, line in efficiency.items()],
    )
    cases = figures["cases"]
    bars = Bars(
        title="Time per step",
        labels=list(cases),
        x_label="ms",
        values=[1e3 * case["step_seconds"] for case in cases.values()],
    )
    return [lines, bars]
