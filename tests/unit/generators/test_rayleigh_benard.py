from __future__ import annotations

import pytest

from scitoolkit.core.errors import NumericalError
from scitoolkit.generators.rayleigh_benard import RayleighBenard
from scitoolkit.testing import GeneratorContract


class TestRayleighBenard(GeneratorContract):
    @pytest.fixture
    def generator(self):
        return RayleighBenard(
            cells=16, levels=12, rayleigh=1e4, time_step=0.02, spinup=1.0, frames=4, interval=0.1
        )


def test_a_time_step_beyond_stability_is_refused():
    fast = RayleighBenard(cells=16, levels=12, time_step=2.0, interval=2.0, spinup=200.0, frames=2)
    with pytest.raises(NumericalError, match="not finite"):
        fast.sample({}, 0)
