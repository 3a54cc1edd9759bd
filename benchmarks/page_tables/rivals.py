"""The table of docs/how-to/choose-an-optimizer.md, written from the results of `second_order`."""

from __future__ import annotations

from _places import ROOT
from _stored import stored

PAGE = ROOT / "docs" / "how-to" / "choose-an-optimizer.md"
BEGIN = "<!-- rivals: written by `python benchmarks/readme.py` -->"
END = "<!-- end of rivals -->"


def table() -> str:
    """Return the table, empty when nothing is stored or the peers were not there."""
    figures = stored("second_order")
    if figures is None or "rivals" not in figures:
        return ""
    lines = [
        "A regression of three functions of eight badly scaled inputs, 240 steps, the best of up "
        "to three rates each, median of three seeds (`python benchmarks/run.py second_order`, "
        f"pytorch-optimizer {figures['pytorch_optimizer']}):",
        "",
        "| optimizer | ms a step | test loss | Jorge's time to that loss over its time |",
        "|---|---|---|---|",
    ]
    for name, row in sorted(figures["rivals"].items(), key=lambda item: item[1]["loss"]):
        ratio = figures.get(f"jorge_over_{name}", "")
        shown = "does not get there" if ratio is None else f"{ratio:.2f}" if ratio else ""
        lines.append(f"| {name} | {row['ms_per_step']:.1f} | {row['loss']:.3f} | {shown} |")
    return "\n".join(lines)
