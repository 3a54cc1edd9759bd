"""The table of docs/ops-generator.md, written from the stored results of `tensor_product`."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "ops-generator.md"
RESULTS = ROOT / "benchmarks" / "results" / "tensor_product.json"
BEGIN = "<!-- figures: written by `python benchmarks/readme.py` -->"
END = "<!-- end of figures -->"
WORK = {"forward": "forward", "backward": "forward + backward", "double": "with double backward"}


def table() -> str:
    """Return the table, empty when nothing is stored."""
    if not RESULTS.exists():
        return ""
    figures = json.loads(RESULTS.read_text(encoding="utf-8"))
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


def updated(page: str) -> str:
    """Return the page with its table written anew."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{table()}\n{END}{tail}"
