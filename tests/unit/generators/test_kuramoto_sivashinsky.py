from __future__ import annotations

import numpy as np
import pytest

from scitoolkit.core.errors import ConfigError, NumericalError
from scitoolkit.generators.kuramoto_sivashinsky import KuramotoSivashinsky, _step
from scitoolkit.testing import GeneratorContract

SMALL = {"cells": 32, "spinup": 5, "frames": 10, "interval": 4}


class TestKuramotoSivashinsky(GeneratorContract):
    @pytest.fixture
    def generator(self):
        return KuramotoSivashinsky(**SMALL)


def test_small_waves_grow_by_the_dispersion_relation():
    settings = KuramotoSivashinsky(
        cells=32, spinup=0, frames=20, interval=10, amplitude=1e-7, length=22.0
    )
    u = settings.generate(0).frames["u"].values
    amplitude = np.abs(np.fft.rfft(u, axis=1))
    seconds = settings.time_step * settings.interval
    rates = np.diff(np.log(amplitude[:, 1:4]), axis=0) / seconds
    k = 2 * np.pi * np.arange(1, 4) / settings.length
    assert np.allclose(rates, k**2 - k**4, atol=1e-6)


def test_the_scheme_is_of_fourth_order():
    ends = []
    for n in (1, 2, 4, 8):
        settings = KuramotoSivashinsky(
            cells=64, spinup=0, frames=1, interval=10 * n, time_step=0.1 / n
        )
        ends.append(settings.generate(1).frames["u"].values[-1])
    errors = [np.abs(e - ends[-1]).max() for e in ends[:-1]]
    assert np.log2(errors[0] / errors[1]) > 3.5


def test_energy_changes_by_production_minus_dissipation():
    settings = KuramotoSivashinsky(cells=64, spinup=50, frames=400, interval=1, time_step=0.02)
    u = settings.generate(2).frames["u"].values
    k = 2 * np.pi * np.fft.rfftfreq(64, settings.length / 64)
    spectrum = np.fft.rfft(u, axis=1)
    slope, bend = (np.fft.irfft(f * spectrum, axis=1) for f in (1j * k, -(k**2)))
    budget = (slope**2 - bend**2).mean(1)
    rate = np.gradient((u**2).mean(1) / 2, settings.time_step)
    assert np.abs(rate - budget)[1:-1].max() < 1e-3 * np.abs(budget).max()


def test_a_step_that_is_too_large_is_told():
    settings = KuramotoSivashinsky(cells=64, spinup=0, frames=50, time_step=5.0, amplitude=50.0)
    with np.errstate(all="ignore"), pytest.raises(NumericalError, match="time_step="):
        settings.generate(0)


@pytest.mark.parametrize("cells", [32, 48, 96])
def test_advection_conserves_the_energy_of_all_resolved_waves(cells):
    """Also where the grid is a multiple of three; the linear part is subtracted exactly."""
    dt = 1e-4
    step, k = _step(1e4, cells, dt), 2 * np.pi / 1e4 * np.arange(cells // 2 + 1)
    resolved = np.arange(k.size) < cells / 3
    state = np.fft.rfft(np.random.default_rng(0).standard_normal(cells)) * resolved
    after = step(state) * np.exp(-dt * (k**2 - k**4))
    before, later = (np.fft.irfft(s, cells) for s in (state, after))
    moved = np.sqrt(np.mean((later - before) ** 2) * np.mean(before**2))
    assert abs(np.mean(later**2) - np.mean(before**2)) < 1e-5 * moved


@pytest.mark.parametrize(("length", "cells"), [(100.0, 64), (23.0, 24), (1e4, 4096), (17.0, 16)])
def test_a_grid_that_damps_nothing_is_refused_with_the_cells_to_set(length, cells):
    with pytest.raises(ConfigError, match=r"damped only from 2.*cells=") as error:
        KuramotoSivashinsky(cells=cells).sample({"length": length}, 0)
    enough = int(str(error.value).split("cells=")[1].split()[0].rstrip("."))
    assert KuramotoSivashinsky(cells=enough).with_parameters({"length": length})
    with pytest.raises(ConfigError, match="cells"):
        KuramotoSivashinsky(cells=enough - 6).with_parameters({"length": length})


def test_a_long_domain_has_the_size_of_a_resolved_one():
    made = KuramotoSivashinsky(length=100.0, cells=122, spinup=100, frames=50).sample({}, 0)
    assert 1.1 < float(made.frames["u"].std()) < 1.4
    assert not made.missed
