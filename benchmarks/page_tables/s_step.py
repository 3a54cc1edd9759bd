"""The table of docs/how-to/read-outs-with-few-messages.md, from the results of `s_step`."""

from __future__ import annotations

from _places import ROOT
from _stored import stored

PAGE = ROOT / "docs" / "how-to" / "read-outs-with-few-messages.md"
BEGIN = "<!-- s-step: written by `python benchmarks/readme.py` -->"
END = "<!-- end of s-step -->"


def table() -> str:
    """Return the table, empty when nothing is stored."""
    figures = stored("s_step")
    if figures is None:
        return ""
    rows = [
        f"| {unrolled} | {row['messages']} | {row['numbers_per_message']:,.0f} | "
        f"{row['iterate_difference']:.0e} |"
        for unrolled, row in figures["unrolled"].items()
    ]
    return "\n".join(
        [
            "200 features of a Lorenz trajectory, 320 steps of 8 features on 4 ranks, "
            f"`python benchmarks/run.py s_step` on {figures['date']}:",
            "",
            "| unrolled | messages | numbers in one | relative difference of the weights |",
            "|---|---|---|---|",
            *rows,
        ]
    )
