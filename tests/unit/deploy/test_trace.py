"""Tracing of models for export."""

from __future__ import annotations

import pytest
import torch

from scitoolkit.core.errors import ConfigError
from scitoolkit.core.traced import ArraySpec, TracedFunction
from scitoolkit.deploy.export import export
from scitoolkit.deploy.kinds import Lowering, lowerings


class Second(Lowering):
    targets = ("aten.tanh.default",)


def test_two_lowerings_of_one_operator_are_refused(tmp_path):
    lowerings.register("a_second_tanh")(Second)
    spec = ArraySpec("x", ("feature",), (3,))
    try:
        with pytest.raises(ConfigError, match=r"have the target aten\.tanh\.default"):
            export([TracedFunction(torch.nn.Tanh(), [spec], [spec])], tmp_path / "model.c")
    finally:
        lowerings.unregister("a_second_tanh")
