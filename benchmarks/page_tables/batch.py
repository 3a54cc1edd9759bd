"""The table of large batches in docs/how-to/choose-an-optimizer.md, from `large_batch`."""

from __future__ import annotations

from _places import ROOT
from _stored import stored

PAGE = ROOT / "docs" / "how-to" / "choose-an-optimizer.md"
BEGIN = "<!-- batch: written by `python benchmarks/readme.py` -->"
END = "<!-- end of batch -->"


def table() -> str:
    """Return the table, empty when nothing is stored."""
    figures = stored("large_batch")
    if figures is None:
        return ""
    lines = [
        f"Three smooth functions, {figures['epochs']} epochs, LEGW from {figures['base_samples']} "
        f"samples a step, nothing tuned again, means of {figures['seeds']} seeds (`python "
        "benchmarks/run.py large_batch`). The goal, a loss within 1 %, is missed. The targets "
        "have no noise that a larger batch would average, which may be why the number of steps "
        "decides; the noise scale was not measured here.",
        "",
        "| batch | steps | LAMB, test loss | AdamW, test loss |",
        "|---|---|---|---|",
    ]
    lamb, adamw = figures["optimizers"]["lamb"], figures["optimizers"]["adamw"]
    for ratio, row in lamb.items():
        cells = " | ".join(
            f"{each[ratio]['loss']:.5f} ({each[ratio]['difference_percent']:+.0f} %)"
            for each in (lamb, adamw)
        )
        lines.append(f"| {ratio} x | {row['steps']} | {cells} |")
    return "\n".join(lines)
