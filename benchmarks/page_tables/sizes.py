"""The table of docs/how-to/which-bound.md, written from the results of `compression_size`."""

from __future__ import annotations

import statistics

from _places import ROOT
from _stored import stored

PAGE = ROOT / "docs" / "how-to" / "which-bound.md"
BEGIN = "<!-- sizes: written by `python benchmarks/readme.py` -->"
END = "<!-- end of sizes -->"
KINDS = {"shipped": "tuned on", "fresh": "fresh", "lines": "unordered lines"}


def table() -> str:
    """Return the table, empty when nothing is stored."""
    figures = stored("compression_size")
    if figures is None:
        return ""
    lines = [
        "Bytes of our stream over the smallest of SZ3 (best of four settings), SPERR and ZFP, from "
        f"`python benchmarks/run.py compression_size` on {figures['date']}:",
        "",
        "| fields | bound | median | worst | worst field |",
        "|---|---|---|---|---|",
    ]
    for kind, text in KINDS.items():
        rows = figures[kind]
        for rel in sorted({key.split()[1] for key in rows}, key=float, reverse=True):
            ratios = {
                key.split()[0]: row["over_smallest"]
                for key, row in rows.items()
                if key.split()[1] == rel
            }
            worst = max(ratios, key=lambda name: ratios[name])
            lines.append(
                f"| {text} | rel {rel} | {statistics.median(ratios.values()):.2f} | "
                f"{ratios[worst]:.2f} | {worst} |"
            )
    return "\n".join(lines)
