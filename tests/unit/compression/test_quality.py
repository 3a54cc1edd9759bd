"""Figures of quality: known values, missing points, and what they tell apart."""

from __future__ import annotations

import numpy as np
import pytest

from scitoolkit.compression.quality import quality

NAMES = ("dssim", "ks", "spectrum", "gradient", "extremes")


@pytest.fixture
def field():
    y, x = np.meshgrid(np.linspace(0, 6, 40), np.linspace(0, 9, 50), indexing="ij")
    waves = np.sin(x) * np.cos(y) + 0.1 * np.sin(7 * x + 3 * y)
    return np.stack([waves, 2 * waves + 1, waves**2]).astype("f4")


def none_missing(x):
    return np.zeros(x.shape, bool)


def test_an_equal_field_is_perfect(field):
    found = quality(field, field, none_missing(field))
    assert found == {"dssim": 1.0, "ks": 0.0, "spectrum": 0.0, "gradient": 0.0, "extremes": 0.0}


def test_known_changes_give_known_figures(field):
    x = field.astype("f8")
    louder = quality(x, 1.1 * x, none_missing(x))
    assert louder["spectrum"] == pytest.approx(0.21)
    assert louder["gradient"] == pytest.approx(0.1)
    shifted = quality(x, x + 0.25 * np.ptp(x), none_missing(x))
    assert shifted["extremes"] == pytest.approx(0.25)
    assert shifted["gradient"] == pytest.approx(0, abs=1e-12)
    line = np.arange(100.0)
    assert quality(line, line + 10, none_missing(line))["ks"] == pytest.approx(0.1)


def test_the_worst_plane_counts_and_noise_costs_structure(field):
    noise, found = np.random.default_rng(0).normal(size=field[1].shape), [1.0]
    for size in (0.01, 0.1, 0.5):
        noisy = field.copy()
        noisy[1] += size * noise
        found.append(quality(field, noisy, none_missing(field))["dssim"])
        alone = quality(field[1:2], noisy[1:2], none_missing(field[1:2]))["dssim"]
        assert found[-1] == alone < found[-2]


def test_missing_points_do_not_count(field):
    masked = none_missing(field)
    masked[:, 10:20, 15:30] = True
    other = field.copy()
    other[masked] = 1e20
    found = quality(np.where(masked, -1e20, field).astype("f4"), other, masked)
    assert found == {"dssim": 1.0, "ks": 0.0, "spectrum": None, "gradient": 0.0, "extremes": 0.0}
    assert quality(field, other, np.ones(field.shape, bool)) == dict.fromkeys(NAMES)


def test_what_is_not_defined_is_none():
    found = quality(np.zeros(5), np.zeros(5), np.zeros(5, bool))
    assert [found[name] for name in NAMES] == [None, 0.0, None, None, None]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_waves_without_power_do_not_count_in_the_spectrum(dtype):
    at = np.arange(64) * 2 * np.pi / 64
    wave = (290 + np.sin(at)[:, None] * np.cos(at)).astype(dtype)
    noisy = wave + np.random.default_rng(0).uniform(-1e-3, 1e-3, wave.shape).astype(dtype)
    assert quality(wave, noisy, none_missing(wave))["spectrum"] < 0.01
