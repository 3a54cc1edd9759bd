"""Emulators in low rank: begun as the best factors of a trained one, trained and used as any."""

from __future__ import annotations

import json

import pytest
import torch

from scitoolkit import api
from scitoolkit.core.config import load_config
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.emulation import surrogate
from scitoolkit.emulation.config import EmulationConfig
from scitoolkit.emulation.stages import prepare
from scitoolkit.ops.low_rank import full_ranks, layers_of

LAYER = "advance.network.encoders.1.0.first.conv"


def loaded(run):
    return surrogate.load(run / "model", load_config(EmulationConfig, run / "config.yaml"))


def section(of, ranks):
    return f"low_rank={json.dumps({'of': str(of), 'ranks': ranks})}"


def lowered(trained, ranks, *more):
    given = [section(trained, ranks), *more]
    return load_config(EmulationConfig, trained / "config.yaml", given)


def test_full_ranks_begin_as_the_trained_emulator_and_low_ones_near_it(trained):
    dense = loaded(trained)
    layers = {names[0]: layer for names, layer in layers_of(dense)}
    ranks = {name: list(full_ranks(layer)) for name, layer in layers.items()}
    x = torch.randn(3, 32)
    with torch.no_grad():
        same = prepare(lowered(trained, ranks)).model
        torch.testing.assert_close(same(x)[0], dense(x)[0], rtol=1e-4, atol=1e-4)
        near = prepare(lowered(trained, {LAYER: [6, 6]})).model
        far = prepare(lowered(trained, {LAYER: [1, 1]})).model
        changes = [float((e(x)[0] - dense(x)[0]).norm()) for e in (near, far)]
    assert 0 < changes[0] < changes[1]


def test_a_run_in_low_rank_is_trained_loaded_evaluated_and_repeated_bit_for_bit(trained):
    config = trained / "config.yaml"
    given = [section(trained, {LAYER: [6, 6]}), "training.steps=6", "rollout.long=2"]
    run = api.train(config, given).path
    emulator = loaded(run)
    assert len(emulator.get_submodule(LAYER)) == 3
    assert sum(p.numel() for p in emulator.parameters()) < sum(
        p.numel() for p in loaded(trained).parameters()
    )
    assert api.evaluate(run).metrics["one_step_over_persistence_u"] < 1
    again = api.train(config, given).path
    for a, b in zip(emulator.parameters(), loaded(again).parameters(), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=0)


def test_what_does_not_fit_is_refused(trained):
    for of, ranks, changes, said in (
        (trained, {"advance.nowhere": [2, 2]}, [], "no linear layer or convolution"),
        (trained, {LAYER: [99, 2]}, [], "from 1 to"),
        (
            trained,
            {LAYER: [6, 6]},
            ["uncertainty={members: 2}"],
            "low_rank needs a single emulator",
        ),
        (trained, {LAYER: [6, 6]}, ["training.strategy=spatial"], "choose another strategy"),
        (trained, {LAYER: [6, 6]}, ["model.widths=[8, 16]"], "does not match"),
    ):
        with pytest.raises(ConfigError, match=said):
            prepare(lowered(of, ranks, *changes))
    given = [section("nowhere", {LAYER: [6, 6]})]
    with pytest.raises(ConfigError, match="nowhere"):
        prepare(load_config(EmulationConfig, trained / "config.yaml", given))


@pytest.mark.parametrize("place", ["units", "step"])
def test_data_unlike_those_of_the_trained_emulator_are_refused(trained, place):
    path = trained / "model" / "facts.json"
    facts = json.loads(path.read_text(encoding="utf-8"))
    for variable in facts["variables"]:
        variable["units"] = "furlong" if place == "units" else variable["units"]
    for dim in facts["dims"]:
        if place == "step" and dim["role"] == "time":
            dim["step"] = {**dim["step"], "number": 10 * dim["step"]["number"]}
    path.write_text(json.dumps(facts), encoding="utf-8")
    with pytest.raises(DataError, match="furlong" if place == "units" else "a step of"):
        prepare(lowered(trained, {LAYER: [6, 6]}))
