"""The table of docs/how-to/divide-a-network.md, written from the results of `mesh_strategy`."""

from __future__ import annotations

from _places import ROOT
from _stored import stored

PAGE = ROOT / "docs" / "how-to" / "divide-a-network.md"
BEGIN = "<!-- mesh: written by `python benchmarks/readme.py` -->"
END = "<!-- end of mesh -->"


def _experts(figures: dict) -> list[str]:
    if "experts_equal_error" not in figures:  # results from before there were experts
        return []
    least, most = (figures[f"experts_{k}bytes_over_formula"] for k in ("least_", ""))
    return [
        "| transformer of 8 experts a block, data 4, expert 2 against one process | "
        f"{figures['experts_equal_error']:.1e} |",
        "| the same: received bytes over the formula, least and largest | "
        f"{least:.4f}, {most:.4f} |",
    ]


def table() -> str:
    """Return the table, empty when nothing is stored."""
    figures = stored("mesh_strategy")
    if figures is None:
        return ""
    kilobytes = {name: value / 1000 for name, value in figures["bytes_by_grid"].items()}
    return "\n".join(
        [
            f"Measured on {figures['processes']} processes (`python benchmarks/run.py "
            "mesh_strategy`): three steps of AdamW with clipping, float64.",
            "",
            "| figure | value |",
            "|---|---|",
            "| pipeline 2, data 2, tensor 2 against one process, largest difference of a weight | "
            f"{figures['equal_error']:.1e} |",
            "| received bytes over the formula, least and largest of all ranks and meshes | "
            f"{figures['least_bytes_over_formula']:.4f}, {figures['bytes_over_formula']:.4f} |",
            *_experts(figures),
            "| sums of activations in a transformer block, forward and backward | "
            f"{figures['all_reduces_per_layer']:.0f} |",
            *(
                f"| perceptron, grid {name.replace('x', ' x ')}: kB a step | {value:.0f} |"
                for name, value in kilobytes.items()
            ),
        ]
    )
