"""Forecasts that depend on a number of each simulation: a bifurcation, seen and unseen."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import xarray as xr
import yaml

from scitoolkit import api
from scitoolkit.core.config import ConfigProblems
from scitoolkit.core.errors import DataError
from scitoolkit.io.fields import open_fields, write_fields

GROWTH = (0.2, 2.0, 0.6, 1.2, 1.6, 0.4, 1.8, 1.0, 1.4, 0.8)


def simulation(growth: float, seed: int) -> np.ndarray:
    """Return (time, x): a wave of Stuart-Landau's equation, its speed and height by `growth`."""
    x = np.linspace(0, 2 * np.pi, 12, endpoint=False)
    z, out = 0.1 * np.exp(1j * np.random.default_rng(seed).uniform(0, 6)), []
    for _ in range(100):
        out.append(z)
        for _ in range(10):
            z = z + 0.01 * ((growth + 1j) * z - (1 + 0.5j) * abs(z) ** 2 * z)
    z = np.array(out)[:, None]
    return z.real * np.cos(x) + z.imag * np.sin(x) + abs(z) ** 2 * np.cos(2 * x)


@pytest.fixture(scope="module")
def campaign(tmp_path_factory):
    folder = tmp_path_factory.mktemp("waves")
    for number, growth in enumerate(GROWTH):
        u = simulation(growth, number)
        # The programs of two runs count it per minute.
        rate = (60 * growth, "min-1") if number in (2, 3) else (growth, "s-1")
        fields = {
            "u": (("time", "x"), u, {"units": "m"}),
            "growth": ((), rate[0], {"units": rate[1]}),
        }
        write_fields(
            xr.Dataset(fields, {"time": 0.1 * np.arange(len(u))}),
            folder / f"s{number}.nc",
        )
    return folder


def config_of(folder, forecaster="quadratic_map", **data):
    config = {
        "domain": "forecasting",
        "workflow": "waves",
        "inputs": 2,
        "leads": 8,
        "data": {"path": str(folder / "s*.nc"), "variable": "u", **data},
        "forecaster": {"name": forecaster},
        "model": {"name": "none"},
        "pod": {"rank": 3},
        "run": {"root": str(folder / "runs")},
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    return path


def test_the_parameter_makes_one_model_of_all_simulations(campaign, tmp_path, caplog):
    # Maps of one step that do not know it diverge and are refused.
    plain = api.train(config_of(campaign, "damped_anomaly_memory"))
    known = api.train(config_of(campaign, parameters=["growth"]))
    errors = [api.evaluate(run.path).metrics["rmse"] for run in (plain, known)]
    assert errors[1] < 0.05 * errors[0]
    results = api.evaluate(known.path)
    assert results.units["rmse"] == "m"
    assert "RMSE of each variable over all leads" not in [t.title for t in results.tables]
    with open_fields(known.path / "results.nc") as maps:
        assert maps["truth"].dims == ("lead", "x")
    file = api.predict(known.path, campaign / "s2.nc", tmp_path / "forecast.nc")
    with open_fields(file) as forecast:
        assert set(forecast.data_vars) == {"u", "u_low", "u_high"}
    assert "extrapolates" not in caplog.text
    with open_fields(campaign / "s2.nc") as beyond:
        write_fields(beyond.load().assign_attrs(growth=3.5), tmp_path / "beyond.nc")
    with caplog.at_level(logging.WARNING):
        api.predict(known.path, tmp_path / "beyond.nc", tmp_path / "forecast.nc")
    assert "growth is 3.5 to 3.5, outside its training range 0.2 to 2" in caplog.text


def test_parameters_that_cannot_be_used_are_refused(campaign):
    with pytest.raises(DataError, match=r"no attribute, scalar or column groth[\s\S]*growth"):
        api.train(config_of(campaign, parameters=["groth"]))
    with pytest.raises(DataError, match="a parameter is constant in a single simulation"):
        api.train(config_of(campaign, parameters=["growth"], path=str(campaign / "s1.nc")))
    with pytest.raises(ConfigProblems, match="u is listed twice or is a variable"):
        api.train(config_of(campaign, parameters=["u"]))
