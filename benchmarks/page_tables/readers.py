"""The paragraph of docs/how-to/hdf5-filter.md, from the results of `compression_readers`."""

from __future__ import annotations

from _places import ROOT
from _stored import stored

PAGE = ROOT / "docs" / "how-to" / "hdf5-filter.md"
BEGIN = "<!-- readers: written by `python benchmarks/readme.py` -->"
END = "<!-- end of readers -->"


def table() -> str:
    """Return the text, empty when nothing is stored."""
    figures = stored("compression_readers")
    if figures is None:
        return ""
    missing = figures["readers_missing"]
    untried = f"; not installed and so not tried: {', '.join(missing)}" if missing else ""
    return (
        f"`python benchmarks/run.py compression_readers` on {figures['date']} (h5py with HDF5 "
        f"{figures['hdf5_of_h5py']}): {', '.join(figures['readers_ok'])} read every value within "
        f"the bound{untried}. Of {figures['damaged_tried']:,} damaged chunks, half of them below a "
        "right checksum, "
        f"{figures['damaged_silent']} gave other values without an error and "
        f"{figures['damaged_crashed']} crashed."
    )
