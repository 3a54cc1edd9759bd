"""The table of docs/how-to/super-resolution.md, from the stored result of `superres_ablation`."""

from __future__ import annotations

from _places import ROOT
from _stored import stored

PAGE = ROOT / "docs" / "how-to" / "super-resolution.md"
BEGIN = "<!-- ablation: written by `python benchmarks/readme.py` -->"
END = "<!-- end of ablation -->"
ROWS = {
    "multilinear": "multilinear interpolation",
    "original": "the original's modules and training",
    "gamma_0": "our model, no equations",
    "ours": "our model, our equations",
    "swapped": "our model, the original's residual",
}

COLUMNS = (
    "trained",
    "R² p",
    "b",
    "u",
    "w",
    "kinetic energy off by",
    "dissipation",
    "spectrum, highest third (decades)",
    "residual/terms: continuity",
    "buoyancy",
    "momentum x",
    "momentum z",
    "CPU-s",
)


def table() -> str:
    """Return the table, empty when nothing is stored."""
    figures = stored("superres_ablation")
    if figures is None:
        return ""
    lines = [
        f"{figures['steps']} steps each, one seed, {figures['date']}:",
        "",
        "| " + " | ".join(COLUMNS) + " |",
        "|---" * len(COLUMNS) + "|",
    ]
    for name, text in ROWS.items():
        if name in figures:
            lines.append(f"| {text} | {' | '.join(_cells(figures[name]))} |")
    return "\n".join(lines)


def _cells(row: dict) -> list[str]:
    cells = [f"{row[f'r2_{f}']:.4f}" for f in "pbuw"]
    cells += [f"{row[f'{key}_error']:.1%}" for key in ("kinetic_energy", "dissipation")]
    cells.append(f"{row['spectrum_error']:.2f}")
    residual = row.get("residual", {})
    names = ("continuity", "buoyancy", "momentum_x", "momentum_z")
    cells += [f"{residual[n]:.2f}" if n in residual else "" for n in names]
    return [*cells, f"{row['cpu_seconds']:.0f}" if "cpu_seconds" in row else ""]
