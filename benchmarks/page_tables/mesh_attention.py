"""The table of docs/how-to/graph-targets.md, written from the results of `mesh_attention`."""

from __future__ import annotations

from _places import ROOT
from _stored import stored

PAGE = ROOT / "docs" / "how-to" / "graph-targets.md"
BEGIN = "<!-- mesh attention: written by `python benchmarks/readme.py` -->"
END = "<!-- end of mesh attention -->"
NAMES = {
    "physics_attention": "`physics_attention`, 4 layers",
    "gine": "`gine`, 8 layers",
    "mesh_graph_net_5": "MeshGraphNet, 5 steps",
    "mesh_graph_net_15": "MeshGraphNet, 15 steps",
}
CLOSED = {
    "inverse_distance": "inverse-distance mean of boundary values",
    "without_hole": "exact potential without the hole",
}


def table() -> str:
    """Return the table, empty when nothing is stored."""
    figures = stored("mesh_attention")
    if figures is None:
        return ""
    errors = [f["error"] for f in figures["networks"].values()] + [*figures["closed"].values()]
    rows = [
        (NAMES[name], f["error"], f"{f['steps']:,}", f"{f['step_ms']:.0f}", f"{f['parameters']:,}")
        for name, f in figures["networks"].items()
    ]
    rows += [(CLOSED[name], error, "", "", "") for name, error in figures["closed"].items()]
    where = figures["machine"]["processor"], figures["date"]
    return "\n".join(
        [
            f"Laplace's equation on meshes of about {figures['nodes_mean']:.0f} nodes, from random "
            "boundary values around holes of random place and shape; "
            f"{figures['fit_cpu_seconds']:.0f} CPU seconds of training each, width 64, one seed "
            f"({', '.join(where)}; `python benchmarks/run.py mesh_attention`). RMSE over the "
            "standard deviation of the truth, on other meshes; the smallest is bold.",
            "",
            "| model | error | steps | CPU ms a step | weights |",
            "|---|---|---|---|---|",
            *(
                f"| {name} | {_bold(error, min(errors))} | {' | '.join(rest)} |"
                for name, error, *rest in rows
            ),
        ]
    )


def _bold(error: float, smallest: float) -> str:
    return f"**{error:.3f}**" if error == smallest else f"{error:.3f}"
