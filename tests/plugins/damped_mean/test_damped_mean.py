from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from scitoolkit.testing import JobContract
from scitoolkit.testing.job import scitoolkit


class TestDampedMean(JobContract):
    domain = "damped_mean"

    def case(self, folder: Path) -> Mapping[str, Any]:
        values = np.random.default_rng(0).standard_normal(12)
        xr.Dataset({"x": ("time", values)}).to_netcdf(self.source(folder))
        return {"data": str(self.source(folder)), "iterations": 3}

    def source(self, folder: Path) -> Path:
        return folder / "series.nc"

    def test_it_is_found_by_its_nearest_name(self, folder: Path) -> None:
        done = scitoolkit("validate", folder / "case.yaml", "domain=damped_meen")
        assert done.code == 2
        assert "Fix: damped_mean" in done.err
