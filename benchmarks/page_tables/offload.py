"""The tables of offloading and plans in docs/how-to/less-training-memory.md, from `comet`."""

from __future__ import annotations

from _places import ROOT
from _stored import stored

PAGE = ROOT / "docs" / "how-to" / "less-training-memory.md"
BEGIN = "<!-- offload: written by `python benchmarks/readme.py` -->"
END = "<!-- end of offload -->"


def table() -> str:
    """Return the table, empty when nothing is stored."""
    figures = stored("comet")
    if figures is None or "offload" not in figures:
        return ""
    lines = [
        "Live bytes of a step in MiB and its seconds on one thread, waiting for the disk included; "
        f"{figures['date']}, load {figures['machine']['load']:.0f} on "
        f"{figures['machine']['cores']} cores, `python benchmarks/run.py comet`:",
        "",
        "| network | moved | live: saved | recompute | offload | seconds: saved | recompute "
        "| offload |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, found in figures["offload"].items():
        cells = [
            f"{found['moved_mib']:.0f}",
            *(f"{mib:.0f}" for mib in found["mib"].values()),
            *(f"{seconds:.2f}" for seconds in found["seconds"].values()),
        ]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "Beside them `planned` without a folder, live bytes over those of the best checkpointing, "
        "and where a step that saves nothing (and is wrong) ends, as operations need memory too:",
        "",
        "| network | planned | nothing saved | gradient error | its time over checkpointing's |",
        "|---|---|---|---|---|",
    ]
    for name, found in figures["planned"].items():
        lines.append(
            f"| {name} | {found['over_checkpointing']:.3f} "
            f"| {found['nothing_saved_over_checkpointing']:.3f} "
            f"| {found['gradient_error']:.1g} | {found['seconds_over_checkpointing']:.2f} |"
        )
    return "\n".join(lines)
