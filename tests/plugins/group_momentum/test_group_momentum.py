from __future__ import annotations

import pytest

from scitoolkit.core.errors import ConfigError
from scitoolkit.testing import OptimizerContract
from scitoolkit.training.config import TrainingConfig
from scitoolkit.training.optim.optimizers import optimizers


class TestGroupMomentum(OptimizerContract):
    @pytest.fixture
    def optimizer(self):
        return TrainingConfig(optimizer={"name": "group_momentum"}).optimizer


def test_it_is_listed_and_suggested():
    assert optimizers.member("group_momentum").problem == ""
    with pytest.raises(ConfigError, match="did you mean group_momentum"):
        TrainingConfig(optimizer={"name": "group_momentun"})
