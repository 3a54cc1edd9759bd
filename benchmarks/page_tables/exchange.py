"""The table of docs/how-to/data-parallel.md, written from the results of `exchange_speed`."""

from __future__ import annotations

from _places import ROOT
from _stored import stored

PAGE = ROOT / "docs" / "how-to" / "data-parallel.md"
BEGIN = "<!-- exchange: written by `python benchmarks/readme.py` -->"
END = "<!-- end of exchange -->"
NAMES = {
    "ddp": "torch's DistributedDataParallel",
    "ddp_views": "the same with bucket views and a static graph",
    "full": "`exchange: {name: full}`",
    "bf16": "`exchange: {name: bf16}`",
}


def table() -> str:
    """Return the table, empty when nothing is stored."""
    figures = stored("exchange_speed")
    if figures is None:
        return ""
    worlds = figures["milliseconds"]
    heads = " | ".join(f"{world} processes" for world in worlds)
    lines = [
        f"A step of 12 layers (48 MiB of gradients) in ms, gloo, {figures['cores']} cores, medians "
        f"of {figures['rounds']} alternating rounds, `python benchmarks/run.py exchange_speed` on "
        f"{figures['date']}; a training of 4 killed ranks resumed bit for bit: "
        f"{figures['resume_equal']}:",
        "",
        f"| exchange | {heads} |",
        "|---" * (1 + len(worlds)) + "|",
    ]
    for name, text in NAMES.items():
        cells = " | ".join(
            f"{row[name]:.0f} ({row[name] / row['ddp']:.2f})" for row in worlds.values()
        )
        lines.append(f"| {text} | {cells} |")
    return "\n".join(lines)
