"""Names of output files against the format that is written to them."""

from __future__ import annotations

from logging import Logger
from pathlib import Path

from scitoolkit.core.log import get_logger

log: Logger = get_logger(__name__)
SUFFIXES = {
    "HDF5": (".h5", ".hdf5", ".nc", ".nc4"),
    "a stream": (".sci",),
    "an array": (".npy", ".f32", ".f64"),
    "a Zarr store": (".zarr", ".zip"),
}


def warn_of_name(target: Path, written: str) -> None:
    """Warn of a file whose name says another format than is written, which no program could open.

    Args:
        target: the file.
        written: a key of SUFFIXES.
    """
    suffix = target.suffix.lower()
    named = next((kind for kind, ends in SUFFIXES.items() if suffix in ends), written)
    if named != written:
        log.warning(
            "%s is written as %s, and its name is that of %s. Fix: a name that ends with %s",
            target,
            written,
            named,
            " or ".join(SUFFIXES[written]),
        )
