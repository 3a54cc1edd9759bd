"""The table of docs/how-to/measure-scaling.md, written from the results of `training_scaling`."""

from __future__ import annotations

from _places import ROOT
from _stored import stored

PAGE = ROOT / "docs" / "how-to" / "measure-scaling.md"
BEGIN = "<!-- scaling: written by `python benchmarks/readme.py` -->"
END = "<!-- end of scaling -->"
PARTS = ("compute", "exchange", "waiting", "optimizer", "other")


def table() -> str:
    """Return the tables, empty when nothing is stored."""
    figures = stored("training_scaling")
    if figures is None:
        return ""
    patterns = list(next(iter(figures["metg50_us"].values())))
    lines = [
        f"{figures['processes']} processes on {figures['cores']} cores whose load was "
        f"{figures['load']:.0f} before, so times are to be compared with each other alone; "
        f"{figures['date']}, `python benchmarks/run.py training_scaling`. Milliseconds of a step:",
        "",
        "| strategy | step | " + " | ".join(PARTS) + " |",
        "|---|---|" + "---|" * len(PARTS),
    ]
    for case, split in figures["time_split_us"].items():
        cells = [figures["step_us"][case], *(split[part] for part in PARTS)]
        lines.append(f"| {case} | " + " | ".join(f"{each / 1e3:.1f}" for each in cells) + " |")
    lines += [
        "",
        "METG(50 %) in milliseconds (-: no step that was tried is half useful) and what a rank "
        "holds and receives:",
        "",
        "| strategy | " + " | ".join(patterns) + " | tensors (MiB) | received (MiB a step) |",
        "|---|" + "---|" * (len(patterns) + 2),
    ]
    for case, metg in figures["metg50_us"].items():
        cells = ["-" if metg[p] is None else f"{metg[p] / 1e3:.1f}" for p in patterns]
        held = sum(figures["memory_bytes_per_rank"][case].values()) / 2**20
        received = sum(figures["bytes_per_step"][case].values()) / 2**20
        lines.append(f"| {case} | " + " | ".join(cells) + f" | {held:.1f} | {received:.1f} |")
    errors = ", ".join(
        f"{100 * figures[f'prediction_error_{n}']:.0f} % at {n} processes"
        for n in (2, figures["processes"])
    )
    doubts = "; ".join(f"at {n}: {why}" for n, why in figures["prediction_doubts"].items())
    lines += [
        "",
        f"The prediction's largest error over the strategies: {errors}. Doubts, {doubts}."
        if doubts
        else f"The prediction's largest error over the strategies: {errors}.",
    ]
    return "\n".join(lines)
