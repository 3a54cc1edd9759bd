"""The table of docs/how-to/choose-a-potential.md on baselines, from `potential_baselines`."""

from __future__ import annotations

from _places import ROOT
from _stored import stored

PAGE = ROOT / "docs" / "how-to" / "choose-a-potential.md"
BEGIN = "<!-- baselines: written by `python benchmarks/readme.py` -->"
END = "<!-- end of baselines -->"


def table() -> str:
    """Return the table, empty when nothing is stored."""
    figures = stored("potential_baselines")
    if figures is None:
        return ""
    lines = [
        "Force RMSE on the test frames in meV/Å, with the workflows as shipped and one of them "
        f"longer (`python benchmarks/run.py potential_baselines` on {figures['date']}):",
        "",
        "| workflow | steps | model | pair potential | zero force |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| `{row['workflow']}` | {row['steps']:,} | {row['model']:.0f} "
        f"| {row['pair_potential']:.0f} | {row['zero_force']:.0f} |"
        for row in figures["force_rmse"].values()
    ]
    return "\n".join(lines)
