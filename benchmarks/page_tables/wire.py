"""The table of docs/how-to/data-parallel.md, written from the results of `wire_bytes`."""

from __future__ import annotations

from _places import ROOT
from _stored import stored

PAGE = ROOT / "docs" / "how-to" / "data-parallel.md"
BEGIN = "<!-- wire: written by `python benchmarks/readme.py` -->"
END = "<!-- end of wire -->"
NAMES = {
    "full": "`full`",
    "error_bounded": "`error_bounded`",
    "sdp4bit": "`sdp4bit`",
    "sdp4bit_hadamard": "`sdp4bit`, `hadamard: true`",
    "naive": "4 bits for weights and gradients, without differences and in one level",
    "powersgd": "torch's PowerSGD hook, rank 4, under DistributedDataParallel",
}


def table() -> str:
    """Return the table, empty when nothing is stored."""
    figures = stored("wire_bytes")
    if figures is None:
        return ""
    lines = [
        "Bytes that a rank receives, full over the exchange's, on two nodes of two processes, and "
        f"the change of the test loss after {figures['steps']} steps of AdamW, mean and standard "
        f"deviation over {figures['seeds']} seeds (`python benchmarks/run.py wire_bytes`): three "
        "smooth functions of six inputs, and Burgers' equation half a time unit on:",
        "",
        "| exchange | bytes | between nodes | functions, loss % | Burgers, loss % |",
        "|---|---|---|---|---|",
    ]
    for way, text in NAMES.items():
        cells = figures["exchanges"][way]
        ratio = min(cell["ratio"] for cell in cells.values())
        far = min(cell["ratio_between_nodes"] for cell in cells.values())
        losses = " | ".join(
            f"{cells[s]['difference_percent']:+.1f} ± {cells[s]['deviation_percent']:.1f}"
            for s in ("functions", "burgers")
        )
        lines.append(f"| {text} | {ratio:.2f} | {far:.2f} | {losses} |")
    return "\n".join(lines)
