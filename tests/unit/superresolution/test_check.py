"""The equations on the shipped simulation: what is right holds, what is exchanged is found."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import xarray as xr
from advected_waves import wave_fields

from scitoolkit import api
from scitoolkit.core.content import find_content
from scitoolkit.superresolution import PDE, check
from scitoolkit.superresolution.grid import RectilinearGrid, numeric_attributes
from scitoolkit.superresolution.simulations import open_simulations
from scitoolkit.superresolution.statistics import Flow, turbulence


@pytest.fixture(scope="module")
def convection():
    _, config = api.load(find_content("workflows", "rayleigh_benard"))
    return config, open_simulations(config.data.path, config.data).dataset(0)


def measured(config, dataset, dims=("t", "z", "x"), **texts):
    pde = PDE.parse(
        texts or config.pde.equations,
        fields=config.data.fields,
        dims=list(dims),
        constants=config.pde.constants,
        attributes=numeric_attributes(dataset),
    )
    return check(pde, dataset, periodic=config.data.periodic)


def test_the_shipped_simulation_obeys_its_equations_in_any_order_of_dims(convection):
    config, dataset = convection
    report = measured(config, dataset)
    assert report.satisfied
    assert max(report.ratios.values()) < 0.2
    assert report.ratios["continuity"] < 1e-3
    for order in list(itertools.permutations(("t", "z", "x")))[1::2]:
        other = measured(config, dataset.transpose(*order), dims=order)
        for name, ratio in report.ratios.items():
            assert other.ratios[name] == pytest.approx(ratio, rel=1e-6)


def test_exchanged_axes_and_wrong_factors_are_named(convection):
    config, dataset = convection
    swapped = measured(config, dataset, continuity="dif(u,z) + dif(w,x)")
    assert not swapped.satisfied
    assert "dims z and x exchanged" in swapped.equations[0].message
    assert "SUSPICIOUS" in str(swapped)
    doubled = measured(
        config, dataset, buoyancy="2*dif(b,t) + u*dif(b,x) + w*dif(b,z) - P*(dif(b,x,x)+dif(b,z,z))"
    )
    assert not doubled.satisfied
    assert "times 0.5" in doubled.equations[0].message


def test_coarse_sampling_in_time_is_warned_of():
    pde = PDE.parse("dif(u,t) + dif(u,x)", fields=["u"], dims=["t", "x"])
    fine = check(pde, wave_fields(65, 48), periodic={"x": 2.0})
    assert fine.satisfied
    assert not fine.warnings
    coarse = check(pde, wave_fields(65, 48).isel(t=slice(None, None, 16)), periodic={"x": 2.0})
    assert any("too coarse along t" in w for w in coarse.warnings)


def test_descending_coordinates_and_wrong_units_of_time():
    pde = PDE.parse("dif(u,t) + dif(u,x)", fields=["u"], dims=["t", "x"])
    data = wave_fields(33, 48)
    upside = check(pde, data.isel(t=slice(None, None, -1)), periodic={"x": 2.0})
    assert upside.satisfied
    assert upside.ratios["equation 1"] < 1e-4
    minutes = data.assign_coords(t=np.linspace(0, 1 / 60, 33))
    report = check(pde, minutes, periodic={"x": 2.0})
    assert "spacing of a coordinate" in report.equations[0].message


def test_a_wrong_equation_of_few_frames_is_reported():
    """Exchanging the dims would need more frames than there are: that guess is left out."""
    t, x = np.linspace(0, 1, 3), np.linspace(0, 1, 64, endpoint=False)
    u = np.sin(2 * np.pi * (x - t[:, None]))
    data = xr.Dataset({"u": (("t", "x"), u)}, coords={"t": t, "x": x})
    pde = PDE.parse("dif(u,t) - 5*dif(u,x,x)", fields=["u"], dims=["t", "x"])
    report = check(pde, data, periodic={"x": 1.0})
    assert not report.satisfied
    assert "largest term" in report.equations[0].message


def test_a_flow_without_viscosity_has_no_scales_of_dissipation():
    x = np.arange(16) / 16
    grid = RectilinearGrid(
        ("t", "x", "y"), (np.arange(3.0), x, x), (None, 1.0, 1.0), ("s", "m", "m")
    )
    fields = np.random.default_rng(0).normal(size=(2, 3, 16, 16))
    found = turbulence(fields, Flow(grid, {"x": 0, "y": 1}, 0.0, 0))
    assert set(found) == {"kinetic_energy", "u_rms", "integral_scale", "turnover_time"}
    assert all(np.isfinite(v).all() for v in found.values())
