"""The tables of graphs-larger-than-a-process.md: `graph_relations` and `mesh_graph_net`."""

from __future__ import annotations

from typing import Any

from _places import ROOT
from _stored import stored

PAGE = ROOT / "docs" / "how-to" / "graphs-larger-than-a-process.md"
BEGIN = "<!-- relations: written by `python benchmarks/readme.py` -->"
END = "<!-- end of relations -->"


def table() -> str:
    """Return the tables, empty when nothing is stored."""
    relations, mesh = stored("graph_relations"), stored("mesh_graph_net")
    parts = [] if relations is None else [_relations(relations)]
    parts += [] if mesh is None else [_mesh(mesh)]
    return "\n\n".join(parts)


def _relations(figures: dict[str, Any]) -> str:
    return "\n".join(
        [
            f"Loss and gradients of two `RGCNConv` in float64 (widths "
            f"{', '.join(map(str, figures['widths']))}) on an R-MAT graph of "
            f"{figures['edges'] / 1e6:.0f} million edges of {figures['relations']} types and "
            f"{figures['nodes'] / 1e6:.1f} million nodes, of which {100 * figures['cut']:.0f} % of "
            "the edges join two parts (`python benchmarks/run.py graph_relations`). They agree to "
            f"{figures['equal_max_relative']:.0e}; {_costs(figures)}:",
            "",
            *_rows(figures),
        ]
    )


def _mesh(figures: dict[str, Any]) -> str:
    return "\n".join(
        [
            f"Loss and gradients of MeshGraphNet at its published size "
            f"({figures['message_passing_steps']} steps, {figures['width']} wide, layers "
            f"recomputed, float32) on a mesh of {figures['nodes']:,} nodes and "
            f"{figures['edges']:,} edges around a cylinder, of which "
            f"{100 * figures['cut']:.1f} % join two parts (`python benchmarks/run.py "
            f"mesh_graph_net`). The loss is {_difference(figures['loss_relative'])}, the gradient "
            f"of each weight {_difference(figures['gradient_relative'])}; {_costs(figures)}:",
            "",
            *_rows(figures),
        ]
    )


def _difference(relative: float) -> str:
    return f"equal to {relative:.0e}" if relative else "the same number"


def _costs(figures: dict[str, Any]) -> str:
    return (
        f"the largest process holds {figures['memory_share']:.2f} of the memory, and all together "
        f"take {figures['cpu_seconds_over_plain']:.2f} times the CPU time"
    )


def _rows(figures: dict[str, Any]) -> list[str]:
    rows = {"torch-geometric, one process": figures["plain"]}
    rows |= {f"part {number}": part for number, part in enumerate(figures["parts"])}
    return [
        "| process | MiB before the step | peak MiB | CPU s |",
        "|---|---|---|---|",
        *(
            f"| {name} | {r['before_mib']:,.0f} | {r['peak_mib']:,.0f} | {r['cpu_seconds']:.1f} |"
            for name, r in rows.items()
        ),
    ]
