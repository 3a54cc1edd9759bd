"""Two containers for the same bound: files with the HDF5 filter, and files of streams.

Each field of `compression_size` becomes an HDF5 file of one variable, which `compress_file` writes
with `container="filter"`, the default, and with `container="stream"`. `filter_over_stream_*` are
ratios of the bytes that hold the values (chunks, or the stream), `*_file_*` those of whole files.
`*_cpu` are medians over fields and bounds of ratios of CPU time, each the median of three
alternating runs with $OMP_NUM_THREADS threads.

`picture_*` are of progressive streams of at least 8 kB: the root mean square error of the picture
from the first tenth of the bytes over the field's standard deviation, and over that of SZ3 with the
bound at which its whole stream has these bytes, i.e. of a second, coarser file.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path

import h5py
import numpy as np

RELS = (1e-2, 1e-3, 1e-4)
CONTAINERS = ("filter", "stream")
ROUNDS = 3


def compared(field: np.ndarray, rel: float, folder: Path) -> dict[str, float]:
    """Return bytes and CPU seconds of both containers for one field at one bound."""
    from _measure import alternate, medians

    from scitoolkit.compression import Bound, Options
    from scitoolkit.compression.check import verify_file
    from scitoolkit.compression.files import FilePlan, compress_file, decompress_file

    source = folder / "field.h5"
    with h5py.File(source, "w") as file:
        file["field"] = field
    targets = {name: folder / f"{name}.h5" for name in CONTAINERS}
    records: dict[str, list[dict[str, float]]] = {}

    def compress(name: str) -> None:
        plan = FilePlan(Bound("rel", rel), {"field": None}, Options(), container=name)
        records[name] = compress_file(source, targets[name], plan)

    came = medians(alternate({n: lambda n=n: compress(n) for n in CONTAINERS}, ROUNDS))
    if not all(r["holds"] for n in CONTAINERS for r in verify_file(targets[n], source)):
        raise AssertionError("the bound is broken")
    back = folder / "back.h5"
    went = medians(
        alternate({n: lambda n=n: decompress_file(targets[n], back) for n in CONTAINERS}, ROUNDS)
    )
    found: dict[str, float] = {}
    for name in CONTAINERS:
        found |= {
            f"{name}_bytes": records[name][0]["bytes"],
            f"{name}_file": targets[name].stat().st_size,
            f"{name}_in": came[name],
            f"{name}_out": went[name],
        }
    return found


def rmse_of(field: np.ndarray, other: np.ndarray) -> float:
    """Return the root mean square error over the field's standard deviation."""
    return float(np.sqrt(np.mean((field.astype("f8") - other) ** 2)) / field.astype("f8").std())


def picture(field: np.ndarray, rel: float) -> dict[str, float]:
    """Return the errors of the picture from a tenth of the bytes, ours and SZ3's; {} if small."""
    from scitoolkit.compression import compress, preview
    from scitoolkit.compression.codecs.interpolation import Interpolation
    from scitoolkit.compression.codecs.sz3 import Sz3

    stream = compress(field, rel=rel, codec=Interpolation(progressive=True))
    if len(stream) < 8000:
        return {}
    coarse, codec, extent = preview(stream[: len(stream) // 10]), Sz3(), float(np.ptp(field))
    if np.abs(coarse.values - field.astype("f8")).max() > coarse.max_error:
        raise AssertionError("the stated error is too small")
    for bound in np.geomspace(1e-5, 1, 300) * extent:
        data = codec.encode(field, bound)
        if len(data) <= len(stream) // 10:
            break
    other = codec.decode(data, field.shape, field.dtype, bound)
    return {"picture": rmse_of(field, coarse.values), "sz3_picture": rmse_of(field, other)}


def run() -> dict:
    """Return all figures; see the module docstring."""
    from _measure import machine
    from compression_size import fresh, lines, shipped

    kinds: dict[str, dict[str, dict[str, float]]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for kind, fields in (("shipped", shipped), ("fresh", fresh), ("lines", lines)):
            kinds[kind] = {
                f"{name} {rel:g}": compared(field, rel, Path(scratch)) | picture(field, rel)
                for name, field in fields()
                for rel in RELS
            }

    def ratios(what: str, *names: str) -> list[float]:
        rows = [row for name in names for row in kinds[name].values()]
        return [row[f"filter_{what}"] / row[f"stream_{what}"] for row in rows]

    figures: dict[str, object] = {}
    for kind in kinds:
        figures[f"filter_over_stream_{kind}_median"] = statistics.median(ratios("bytes", kind))
        figures[f"filter_over_stream_{kind}_worst"] = max(ratios("bytes", kind))
    pictures = [r for name in ("shipped", "fresh") for r in kinds[name].values() if "picture" in r]
    over_sz3 = [row["picture"] / row["sz3_picture"] for row in pictures]
    return {
        **figures,
        "picture_fields": len(pictures),
        "picture_rmse_median": statistics.median(row["picture"] for row in pictures),
        "picture_rmse_worst": max(row["picture"] for row in pictures),
        "picture_over_sz3_median": statistics.median(over_sz3),
        "picture_over_sz3_worst": max(over_sz3),
        "filter_over_stream_file_median": statistics.median(ratios("file", *kinds)),
        "filter_over_stream_in_cpu": statistics.median(ratios("in", *kinds)),
        "filter_over_stream_out_cpu": statistics.median(ratios("out", *kinds)),
        **kinds,
        "machine": machine(),
    }
