"""Real monthly sea-surface temperature on few cells."""

from __future__ import annotations

from pathlib import Path

from scitoolkit.io.fields import open_fields, write_fields

ERSST = Path(__file__).resolve().parents[2] / "datasets" / "ersst_v5"


def write_coarse_field(folder: Path) -> Path:
    """Write every sixth cell of all months to a folder; return the file."""
    (source,) = ERSST.glob("*.nc")
    with open_fields(source, "sst") as dataset:
        coarse = dataset.isel(lat=slice(None, None, 6), lon=slice(None, None, 6)).load()
    return write_fields(coarse, folder / "small.nc")
