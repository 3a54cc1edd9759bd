"""The table of docs/how-to/which-bound.md, from the results of `compression_speed`."""

from __future__ import annotations

from _places import ROOT
from _stored import stored

PAGE = ROOT / "docs" / "how-to" / "which-bound.md"
BEGIN = "<!-- speed: written by `python benchmarks/readme.py` -->"
END = "<!-- end of speed -->"


def table() -> str:
    """Return the table, empty when nothing is stored."""
    found = stored("compression_speed")
    if found is None:
        return ""
    least = found["sz3_bytes"]
    rows = [
        "| | MB/s in | MB/s out | bytes over SZ3's |",
        "|---|---|---|---|",
        *(
            f"| {label} | {found[f'{key}_mbps_in']:.0f} | {found[f'{key}_mbps_out']:.0f} | "
            f"{found[f'{key}_bytes'] / least:.2f} |"
            for label, key in (("`--for size`", "size"), ("`--for speed`", "speed"), ("SZ3", "sz3"))
        ),
    ]
    ratios = found["over_sz3"].values()
    head = (
        "Turbulence mirrored to 256³ float32 values, 0.1 % of the range, CPU time of one core, all "
        f"checks included (`python benchmarks/run.py compression_speed`, {found['date']}):"
    )
    tail = (
        f"On {len(ratios)} fields of 2¹⁸ points or more `--for speed` writes {min(ratios):.2f} to "
        f"{max(ratios):.2f} of SZ3's bytes. A gigabyte takes {found['rss_1gb_mib']:.0f} MiB of "
        f"memory, a chunk of 64³ points of it {found['random_access_ms']:.1f} ms."
    )
    return "\n".join([head, "", *rows, "", tail])
