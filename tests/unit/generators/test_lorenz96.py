from __future__ import annotations

import numpy as np
import pytest

from scitoolkit import api
from scitoolkit.core.content import content_root
from scitoolkit.core.errors import ConfigError, NumericalError
from scitoolkit.generators.lorenz96 import Lorenz96
from scitoolkit.io.fields import open_fields
from scitoolkit.testing import GeneratorContract


class TestLorenz96(GeneratorContract):
    @pytest.fixture
    def generator(self):
        return Lorenz96(spinup=5, frames=10)


def test_the_workflow_makes_the_shipped_series_bit_for_bit(tmp_path):
    workflow = content_root("workflows") / "lorenz96" / "config.yaml"
    run = api.train(workflow, [f"run.root={tmp_path}"])
    shipped = content_root("datasets") / "lorenz96" / "lorenz96_f8_40x700.nc"
    with open_fields(shipped) as there, open_fields(run.path / "campaign/sample_00000.nc") as made:
        assert np.array_equal(made["u"].values, there["u"].values)


def test_the_scheme_is_of_fourth_order():
    ends = []
    for n in (1, 2, 4, 8):
        settings = Lorenz96(spinup=4 * n, frames=1, time_step=0.05 / n, amplitude=1.0)
        ends.append(settings.generate(0).frames["u"].values[0].astype(float))
    errors = [np.abs(e - ends[-1]).max() for e in ends[:2]]
    assert np.log2(errors[0] / errors[1]) > 3.5


def test_a_step_that_is_too_large_is_told():
    with pytest.raises(NumericalError, match=r"time_step=0\.25"):
        Lorenz96(time_step=1.0, spinup=50, frames=5).generate(0)


def test_a_seed_for_each_sample_or_none(tmp_path):
    workflow = content_root("workflows") / "lorenz96" / "config.yaml"
    with pytest.raises(ConfigError, match="1 seeds for 2 samples"):
        api.load(workflow, ["draw.samples=2"])
