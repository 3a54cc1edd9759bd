"""Make the subset again from NOAA's full monthly file, or check a file that you have.

    python generate.py --source sst.mnmean.nc --output DIRECTORY
    python generate.py --check FILE

The full file (NOAA Physical Sciences Laboratory, `sst.mnmean.nc` of ERSST v5) has to be there
already: nothing is downloaded. NOAA revises recent months, so the values of a subset made today
may differ from the shipped ones in their last months; `dataset.yaml` describes the shipped file.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import xarray as xr

from scitoolkit.core.errors import DataError
from scitoolkit.io.coordinates import check_field, require_dims
from scitoolkit.io.fields import open_fields, write_fields

FIRST, LAST = "2010-01", "2020-08"
SHAPE = {"time": 128, "lat": 89, "lon": 180}
NAME = "ersstv5_monthly_2deg_201001-202008.nc"


def subset(source: Path, output: Path) -> Path:
    """Cut the months out of the full file, check and write them; return the new file."""
    with open_fields(source, "sst", units={"sst": "degC"}) as dataset:
        months = dataset.sel(time=slice(FIRST, LAST)).astype({"sst": np.float32})
        check(months["sst"], str(source))
        return write_fields(months, output / NAME)


def check(sst: xr.DataArray, where: str) -> None:
    """Refuse a field that is not the 128 months on the 2 degree grid with land as NaN."""
    require_dims(sst, list(SHAPE), where=where)
    if dict(sst.sizes) != SHAPE:
        raise DataError(f"extent {dict(sst.sizes)}", where=where, allowed=str(SHAPE))
    first, last = (np.datetime64(sst["time"].values[i], "M") for i in (0, -1))
    if (str(first), str(last)) != (FIRST, LAST):
        raise DataError(f"months {first} to {last}", where=where, allowed=f"{FIRST} to {LAST}")
    steps = np.diff(sst["time"].values.astype("datetime64[M]").astype(int))
    if (steps != 1).any():
        raise DataError("a month is missing", where=where)
    counted = check_field(sst, where=where)
    if counted.minimum < -2.0 or counted.maximum > 45.0:
        raise DataError(
            f"values from {counted.minimum:g} to {counted.maximum:g}",
            where=where,
            allowed="-2 to 45 degC",
        )
    land = np.isnan(sst.transpose(*SHAPE).values)
    if (land != land[0]).any():
        raise DataError("the land mask changes with time", where=where)


def main() -> None:
    """Run one of the two commands of the module docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", type=Path, help="NOAA's full monthly file")
    parser.add_argument("--output", type=Path, default=Path("."), help="folder to write to")
    parser.add_argument("--check", type=Path, help="a file to check instead")
    options = parser.parse_args()
    if options.check:
        with open_fields(options.check, "sst", units={"sst": "degC"}) as dataset:
            check(dataset["sst"], str(options.check))
        print(f"{options.check}: as expected")
    elif options.source:
        print(subset(options.source, options.output))
    else:
        parser.error("give --source or --check")


if __name__ == "__main__":
    main()
