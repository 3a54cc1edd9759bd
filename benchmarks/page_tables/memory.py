"""The table of docs/how-to/larger-models.md, written from the results of `sharded_memory`."""

from __future__ import annotations

from _places import ROOT
from _stored import stored

PAGE = ROOT / "docs" / "how-to" / "larger-models.md"
BEGIN = "<!-- memory: written by `python benchmarks/readme.py` -->"
END = "<!-- end of memory -->"


def table() -> str:
    """Return the table, empty when nothing is stored."""
    figures = stored("sharded_memory")
    if figures is None:
        return ""
    peaks, built = figures["peak_mib"], figures["built_mib"]
    lines = [
        f"24 layers of 1,024 ({figures['parameters_mib']:.0f} MiB of parameters) with AdamW on "
        "CPUs, built on the meta device, MiB of the worst process beyond what it held before "
        f"(`python benchmarks/run.py sharded_memory`); the losses agree to "
        f"{figures['loss_difference']:.0e}:",
        "",
        "| processes | after building | peak of three steps | times P over one process |",
        "|---|---|---|---|",
    ]
    lines += [
        f"| {world} | {built[world]:.0f} | {peaks[world]:.0f} | "
        f"{int(world) * peaks[world] / peaks['1']:.2f} |"
        for world in peaks
    ]
    lines += [
        "",
        f"With 90 % of the weights pruned (`pruning`) one process holds {figures['samo_mib']:.0f} "
        f"MiB of tensors between steps, by the formula {figures['samo_formula_mib']:.0f}, instead "
        f"of {figures['dense_mib']:.0f}.",
    ]
    return "\n".join(lines)
