"""The table of large batches in docs/how-to/choose-an-optimizer.md, from `large_batch`."""

from __future__ import annotations

from _stored import ROOT, stored

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
        "benchmarks/run.py large_batch`). The targets have no noise: what counts is the number of "
        "steps, and no rate makes up for sixteen times fewer of them.",
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
