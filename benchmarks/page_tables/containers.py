"""The paragraph of docs/how-to/hdf5-filter.md, from the results of `compression_containers`."""

from __future__ import annotations

from _places import ROOT
from _stored import stored

PAGE = ROOT / "docs" / "how-to" / "hdf5-filter.md"
BEGIN = "<!-- containers: written by `python benchmarks/readme.py` -->"
END = "<!-- end of containers -->"
KINDS = {
    "shipped": "shipped fields",
    "fresh": "fields that took no part in tuning",
    "lines": "unordered lines",
}


def table() -> str:
    """Return the table, empty when nothing is stored."""
    figures = stored("compression_containers")
    if figures is None:
        return ""
    rows = [
        f"| {text} | {figures[f'filter_over_stream_{kind}_median']:.3f} | "
        f"{figures[f'filter_over_stream_{kind}_worst']:.2f} |"
        for kind, text in KINDS.items()
    ]
    return "\n".join(
        [
            "Bytes of the values behind the filter over those of the stream, bounds of 1 %, 0.1 % "
            "and 0.01 % of the range (`python benchmarks/run.py compression_containers`, "
            f"{figures['date']}):",
            "",
            "| | median | worst |",
            "|---|---|---|",
            *rows,
            "",
            f"CPU time, one thread: {figures['filter_over_stream_in_cpu']:.2f} of that of streams "
            f"to compress and {figures['filter_over_stream_out_cpu']:.2f} to decompress (medians). "
            "Whole files: "
            f"{figures['filter_over_stream_file_median']:.2f} (median) of fields of 4 KB "
            "to 6 MB, as the index of chunks takes some kilobytes a variable.",
            *_pictures(figures),
        ]
    )


def _pictures(figures: dict) -> list[str]:
    """Return the paragraph on progressive streams; [] for a result from before there were any."""
    if "picture_fields" not in figures:
        return []
    return [
        "",
        "Pictures from the first tenth of progressive streams "
        f"({figures['picture_fields']} fields and bounds): root mean square error "
        f"{figures['picture_rmse_median']:.2f} of the standard deviation (median; worst "
        f"{figures['picture_rmse_worst']:.2f}), {figures['picture_over_sz3_median']:.2f} "
        f"(median; worst {figures['picture_over_sz3_worst']:.2f}) of that of a second, coarser "
        "SZ3 file of the same bytes.",
    ]
