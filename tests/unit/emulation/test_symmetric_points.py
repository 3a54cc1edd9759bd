"""Shifts and mirrors of points that they do not map onto each other."""

from __future__ import annotations

import numpy as np
import pytest

from scitoolkit.core.errors import ConfigError
from scitoolkit.emulation.checks import check_symmetries
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.variables import Layout, Variable
from scitoolkit.generators.convection_solver import gauss_points

STRETCHED = np.linspace(0.0, 1.0, 8) ** 2


def check(tmp_path, points, **symmetries):
    u = Variable("u", ("x",), (8,), "", is_field=True)
    layout = Layout((u,), (u,), {"x": 8}, {"x": points.tolist()} if len(points) else {}, "time")
    config = EmulationConfig(
        data={"path": tmp_path, "inputs": ["u"], "outputs": ["u"]},
        boundary={"x": "circular"},
        symmetries=symmetries,
    )
    check_symmetries(config, layout)


@pytest.mark.parametrize("points", [np.arange(8.0), np.arange(8.0)[::-1], np.zeros(0)])
def test_even_points_may_be_shifted_and_mirrored(tmp_path, points):
    check(tmp_path, points, shift=["x"], mirror={"x": []})


def test_symmetric_points_may_be_mirrored_and_not_shifted(tmp_path):
    check(tmp_path, gauss_points(8), mirror={"x": ["u"]})
    with pytest.raises(ConfigError, match="not evenly spaced"):
        check(tmp_path, gauss_points(8), shift=["x"])


def test_points_that_crowd_at_one_end_are_not_mirrored(tmp_path):
    with pytest.raises(ConfigError, match="not symmetric about their middle"):
        check(tmp_path, STRETCHED, mirror={"x": ["u"]})
