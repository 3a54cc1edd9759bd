"""The table of docs/how-to/bound-a-quantity.md, written from the results of `compression_qoi`."""

from __future__ import annotations

from _places import ROOT
from _stored import stored

PAGE = ROOT / "docs" / "how-to" / "bound-a-quantity.md"
BEGIN = "<!-- quantities: written by `python benchmarks/readme.py` -->"
END = "<!-- end of quantities -->"


def table() -> str:
    """Return the table, empty when nothing is stored."""
    figures = stored("compression_qoi")
    if figures is None:
        return ""
    rows = {name: row for name, row in figures.items() if isinstance(row, dict) and "ratio" in row}
    lines = [
        f"{figures['cases']:,} random cases, {figures['cases_with_loss']:,} of them coded with "
        f"loss: {figures['qoi_violations']} violations. Bytes beside compression-safeguards over "
        "SZ3 at the best of a grid of bounds, from `python benchmarks/run.py compression_qoi` on "
        f"{figures['date']}:",
        "",
        "| quantity | bound | bytes | safeguards over SZ3 | ratio |",
        "|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        quantity, rel = name.split()
        lines.append(
            f"| {quantity} | rel {rel} | {row['bytes']:,} | {row['safeguards_over_sz3']:,} | "
            f"{row['ratio']:.2f} |"
        )
    return "\n".join(lines)
