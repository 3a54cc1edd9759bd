"""The table of graphs-larger-than-a-process.md, from the results of `graph_relations`."""

from __future__ import annotations

from _stored import ROOT, stored

PAGE = ROOT / "docs" / "how-to" / "graphs-larger-than-a-process.md"
BEGIN = "<!-- relations: written by `python benchmarks/readme.py` -->"
END = "<!-- end of relations -->"


def table() -> str:
    """Return the table, empty when nothing is stored."""
    figures = stored("graph_relations")
    if figures is None:
        return ""
    plain, parts = figures["plain"], figures["parts"]
    rows = {"torch-geometric, one process": plain}
    rows |= {f"part {number}": part for number, part in enumerate(parts)}
    return "\n".join(
        [
            f"Loss and gradients of two `RGCNConv` in float64 (widths "
            f"{', '.join(map(str, figures['widths']))}) on an R-MAT graph of "
            f"{figures['edges'] / 1e6:.0f} million edges of {figures['relations']} types and "
            f"{figures['nodes'] / 1e6:.1f} million nodes, of which {100 * figures['cut']:.0f} % of "
            "the edges join two parts (`python benchmarks/run.py graph_relations`). They agree to "
            f"{figures['equal_max_relative']:.0e}; the largest process holds "
            f"{figures['memory_share']:.2f} of the memory, and all together take "
            f"{figures['cpu_seconds_over_plain']:.2f} times the CPU time:",
            "",
            "| process | MiB before the step | peak MiB | CPU s |",
            "|---|---|---|---|",
            *(
                f"| {name} | {r['before_mib']:,.0f} | {r['peak_mib']:,.0f} | "
                f"{r['cpu_seconds']:.1f} |"
                for name, r in rows.items()
            ),
        ]
    )
