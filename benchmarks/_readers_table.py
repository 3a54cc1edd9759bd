"""The paragraph of docs/how-to/hdf5-filter.md, from the results of `compression_readers`."""

from __future__ import annotations

import json
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "how-to" / "hdf5-filter.md"
RESULTS = ROOT / "benchmarks" / "results" / "compression_readers.json"
BEGIN = "<!-- readers: written by `python benchmarks/readme.py` -->"
END = "<!-- end of readers -->"


def paragraph() -> str:
    """Return the text, empty when nothing is stored."""
    if not RESULTS.exists():
        return ""
    figures = json.loads(RESULTS.read_text(encoding="utf-8"))
    return (
        f"`python benchmarks/run.py compression_readers` on {figures['date']} (h5py with HDF5 "
        f"{figures['hdf5_of_h5py']}): {', '.join(figures['readers_ok'])} read every value within "
        f"the bound; not installed and so not tried: {', '.join(figures['readers_missing'])}. Of "
        f"{figures['damaged_tried']:,} damaged chunks, half of them below a right checksum, "
        f"{figures['damaged_silent']} gave other values without an error and "
        f"{figures['damaged_crashed']} crashed."
    )


def updated(page: str) -> str:
    """Return the page with its paragraph written anew."""
    head, _, rest = page.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{paragraph()}\n{END}{tail}"
