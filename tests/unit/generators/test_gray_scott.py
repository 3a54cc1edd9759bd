from __future__ import annotations

import numpy as np
import pytest

from scitoolkit.generators.gray_scott import GrayScott
from scitoolkit.testing import GeneratorContract


class TestGrayScott(GeneratorContract):
    @pytest.fixture
    def generator(self):
        return GrayScott(cells=16, spinup=1, frames=4, interval=2)


@pytest.mark.parametrize("mode", [0, 3])
def test_small_waves_grow_as_the_jacobian_says(mode):
    feed, kill, n, length = 0.04, 0.055, 32, 1.0
    root = np.sqrt(1 - 4 * (feed + kill) ** 2 / feed)
    b0 = feed / (2 * (feed + kill)) * (1 + root)
    a0 = 1 - (feed + kill) / feed * b0
    generator = GrayScott(feed=feed, kill=kill, cells=n, length=length, time_step=0.5)
    wave = np.cos(2 * np.pi * mode * np.arange(n) / n)[:, None] * np.ones(n)
    jacobian = np.array([[-(b0**2) - feed, -2 * a0 * b0], [b0**2, 2 * a0 * b0 - feed - kill]])
    jacobian -= np.diag([2e-5, 1e-5]) * (2 * np.pi * mode / length) ** 2
    rates, vectors = np.linalg.eig(jacobian)
    i = int(np.argmax(rates.real))
    size = 1e-7
    start = np.stack(
        [c + size * (v * wave).real for c, v in zip((a0, b0), vectors[:, i], strict=True)]
    )
    state, step = np.fft.rfft2(start), generator.stepper()
    for _ in range(40):
        state = step(state)
    end = np.fft.irfft2(state, s=(n, n))[:, 0, 0] - [a0, b0]
    exact = size * (vectors[:, i] * np.exp(rates[i] * 20)).real
    assert np.abs(end - exact).max() < 2e-6 * np.abs(exact).max() + 1e-14


def test_patterns_that_died_out_or_are_smaller_than_the_grid_are_told():
    dead = GrayScott(feed=0.06, kill=0.062, spots=4, cells=64, frames=10, spinup=100).sample({}, 0)
    assert "died out" in dead.notes[0]
    assert not dead.missed
    assert "use cells=64" in GrayScott(cells=32).sample({}, 0).missed[0]
    alive = GrayScott(frames=10).sample({}, 0)
    assert not alive.notes
    assert not alive.missed
