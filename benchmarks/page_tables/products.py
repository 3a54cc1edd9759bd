"""The table of generated-products.md, written from the stored results of `tensor_product`."""

from __future__ import annotations

from _places import ROOT
from _stored import stored

PAGE = ROOT / "docs" / "reference" / "generated-products.md"
BEGIN = "<!-- figures: written by `python benchmarks/readme.py` -->"
END = "<!-- end of figures -->"
WORK = {"forward": "forward", "backward": "forward + backward", "double": "with double backward"}


def table() -> str:
    """Return the table, empty when nothing is stored."""
    figures = stored("tensor_product")
    if figures is None:
        return ""
    machine = figures["machine"]
    lines = [
        f"{figures['date']}, {machine['processor']} ({machine['vectors']}), one thread, "
        f"load {machine['load']} on {machine['cores']} cores, torch {machine['torch']}, float32; "
        f"sgemm {figures['sgemm_gflops']:.0f} GFLOP/s, copy {figures['copy_gb_s']:.0f} GB/s. "
        "No GPU.",
        "",
        "| problem | edges | "
        + " | ".join(f"{text}: ms (fastest peer / ours; bound)" for text in WORK.values())
        + " |",
        "|---|---|---|---|---|",
    ]
    for name, problem in figures["problems"].items():
        cells = []
        for work in WORK:
            timed = problem[work]
            ratio, bound = timed["speedup"], timed["speedup_at_floor"]
            cells.append(f"{timed['ours_ms']:.2f} ({ratio:.0f} x; {bound:.0f} x)")
        lines.append(f"| {name} | {problem['edges']} | {' | '.join(cells)} |")
    return "\n".join(lines)
