"""Parts of a training list the keys that they do not support; the configuration asks them."""

from __future__ import annotations

from typing import ClassVar, Literal

import pytest

from scitoolkit.core.errors import ConfigError
from scitoolkit.training.config import TrainingConfig
from scitoolkit.training.optim.optimizers import SGD, optimizers
from scitoolkit.training.requirements import changed_keys


class Careful(SGD):
    """A third party's optimizer that reads no schedule."""

    elementwise: ClassVar[bool] = False
    name: Literal["careful"] = "careful"

    def excludes(self):
        return {"schedule": "it sets its rate itself", "sharding.stage": "it gathers gradients"}


@pytest.fixture
def careful():
    optimizers.register("careful")(Careful)
    yield
    optimizers.unregister("careful")


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"schedule": {"name": "cosine"}}, "optimizer careful does not support schedule, since it"),
        ({"strategy": "sharded", "sharding": {"stage": 2}}, "does not support sharding.stage"),
        ({"pruning": {}}, "pruning needs optimizer adam"),
    ],
)
def test_a_new_part_is_refused_with_what_it_excludes(careful, settings, told):
    with pytest.raises(ConfigError, match=told) as error:
        TrainingConfig(optimizer={"name": "careful"}, **settings)
    assert "careful" in str(error.value)


def test_a_new_part_works_with_all_else(careful):
    assert TrainingConfig(optimizer={"name": "careful"}, clip_norm=1.0).optimizer.name == "careful"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"gather_precision": "bf16", "precision": "bf16"}, "only read by strategy sharded"),
        (
            {
                "strategy": "sharded",
                "sharding": {"stage": 1},
                "gather_precision": "bf16",
                "precision": "bf16",
            },
            "does not support gather_precision",
        ),
        ({"strategy": "sharded", "pruning": {}}, "choose sharding.stage 1 or 2"),
        (
            {"strategy": "sharded", "sharding": {"stage": 1, "offload": True}, "pruning": {}},
            "pruning does not support sharding.offload",
        ),
        (
            {"strategy": "ddp", "sharding": {"stage": 1}},
            "sharding is only read by strategy sharded",
        ),
        ({"memory": {"activations": "recompute"}, "compile": True}, "does not support compile"),
        (
            {"optimizer": {"name": "gauss_newton"}, "schedule": {"name": "cosine"}},
            "chooses its step length itself",
        ),
        ({"optimizer": {"name": "gauss_newton"}, "clip_norm": 1.0}, "does not support clip_norm"),
    ],
)
def test_shipped_parts(settings, told):
    with pytest.raises(ConfigError, match=told):
        TrainingConfig(**settings)


def test_an_exchange_is_read_without_a_named_strategy():
    assert TrainingConfig(exchange={"name": "bf16"}).exchange.name == "bf16"


def test_changed_keys_are_those_with_other_values():
    assert changed_keys(TrainingConfig()) == set()
    changed = changed_keys(TrainingConfig(strategy="sharded", sharding={"stage": 1}))
    assert changed == {"strategy", "sharding", "sharding.stage"}
