"""A dry run of a forecast opens the data and runs one batch; it leaves the choice to the run."""

from __future__ import annotations

import numpy as np
import pytest
import xarray as xr

from scitoolkit import api
from scitoolkit.forecasting.choosing import Chooser
from scitoolkit.forecasting.forecasters.base import ForecasterConfig
from scitoolkit.io.fields import write_fields


@pytest.fixture
def series(tmp_path):
    time = np.arange(120)
    values = np.sin(time[:, None] / 6 + np.arange(5)) + 0.01 * time[:, None]
    dims = ("time", "x")
    field = xr.Dataset({"t": (dims, values.astype(np.float32))}, {"time": time, "x": np.arange(5)})
    return write_fields(field, tmp_path / "series.nc")


@pytest.mark.parametrize(
    ("settings", "network"),
    [(["model.name=none"], False), (["model.name=auto", "model.hidden=2"], True)],
)
def test_no_forecaster_is_chosen(tmp_path, series, monkeypatch, settings, network):
    def refused(*_arguments: object) -> None:
        raise AssertionError("a dry run compares no forecasters")

    monkeypatch.setattr(Chooser, "select", refused)
    monkeypatch.setattr(ForecasterConfig, "tune", refused)
    monkeypatch.setattr(ForecasterConfig, "tune_harmonics", refused, raising=False)
    path = tmp_path / "job.yaml"
    path.write_text(f"domain: forecasting\ndata: {{path: {series}, variable: t}}\nleads: 4\n")
    facts = api.check(path, settings)
    assert facts["steps"] == 120
    assert ("first_loss" in facts) == network
    assert facts["fitted"]
