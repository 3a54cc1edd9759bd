from __future__ import annotations

import json

import numpy as np
import pytest

from scitoolkit import api
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.emulation import streaming
from scitoolkit.emulation.stages import prepare

GENERATOR = {"name": "kuramoto_sivashinsky", "cells": 16, "spinup": 1, "frames": 6}
DRAW = {"samples": 9, "parameters": {"length": {"low": 8, "high": 15}}}
STREAM = {"workers": 0, "reservoir": 3, "validation": 1, "test": 1}


@pytest.fixture
def online(job):
    def make(stream=None, data=None, **sections):
        written = {
            "generator": GENERATOR,
            "draw": DRAW,
            "stream": {**STREAM, **(stream or {})},
            "inputs": ["u"],
            "outputs": ["u"],
            "parameters": ["length"],
            **(data or {}),
        }
        training = {"steps": 20, "checkpoint": {"every_steps": 4}, **sections.pop("training", {})}
        return job(
            written,
            boundary={"x": "circular"},
            model={"name": "unet", "widths": [4, 6]},
            training=training,
            **sections,
        )

    return make


def weights(run):
    return (run.path / "model" / "weights.safetensors").read_bytes()


def test_one_configuration_trains_online_and_on_stored_runs(online):
    run = api.train(online())
    record = json.loads((run.path / "model" / "fit.json").read_text())
    assert record["loader"]["simulations_entered"] == 9
    assert record["loader"]["simulations_made"] == 6
    assert len(list((run.path / "simulations").glob("*.nc"))) == 5
    assert "rmse_u" in api.evaluate(run.path).metrics
    kept = {"reservoir": 16, "mode": "stored"}
    stored = api.train(online(kept))
    assert len(list((stored.path / "simulations").glob("*.nc"))) == 11
    assert weights(stored) != weights(run)
    first = run.path / "simulations" / "sample_00000.nc"
    assert api.predict(run.path, first, run.path / "out.nc", 2).is_file()


def test_several_leads_and_history_are_streamed(online):
    for more in ({"leads": [1, 2]}, {"history": 2}):
        record = json.loads((api.train(online(data=more)).path / "model/fit.json").read_text())
        assert record["loader"]["simulations_entered"] > 3


def test_an_interrupted_online_training_goes_on_bit_for_bit(online, interrupt):
    whole = weights(api.train(online()))
    interrupt(online(), 10)
    assert weights(api.train(online(), resume=True)) == whole


def test_a_committee_chooses_and_resumes_the_same(online, interrupt):
    sections = {"uncertainty": {"members": 2, "steps": 2, "starts": 2}}
    active = {"mode": "active", "candidates": 4}
    run = api.train(online(active, **sections))
    lines = [json.loads(x) for x in (run.path / "stream.jsonl").read_text().splitlines()]
    chosen = {line["chosen"]: line["parameters"]["length"] for line in lines if "chosen" in line}
    assert sorted(chosen) == list(range(5, 11))  # after 3 in the reservoir and 2 held out
    interrupt(online(active, **sections), 13)  # between two checkpoints
    assert weights(api.train(online(active, **sections), resume=True)) == weights(run)


def test_a_committee_chooses_where_its_members_disagree(online, tmp_path):
    config = api.load(online({"mode": "active"}, uncertainty={"members": 2}))[1]
    prepared = prepare(config, tmp_path / "run")
    loader = prepared.loaders["train"]
    next(iter(loader))
    committee, seen = loader.choose.__self__, []
    plain = committee.disagreement
    committee.disagreement = lambda sets: seen.append((sets, plain(sets))) or seen[-1][1]
    chosen = committee.choose(7)
    ((sets, spread),) = seen
    assert chosen == sets[int(np.argmax(spread))]
    assert len({s["length"] for s in sets}) == 16
    assert spread.min() > 0
    first, second = prepared.model.members
    second.load_state_dict(first.state_dict())
    assert plain(sets) == pytest.approx(np.zeros(16))
    loader.close()


def test_training_stops_at_a_held_out_error(online):
    stopping = {"epochs": 50, "steps": None, "early_stopping": {"target": 1e6}}
    run = api.train(online(training=stopping))
    record = json.loads((run.path / "model" / "fit.json").read_text())
    assert record["steps"] == 3  # one epoch of the reservoir: 3 * 5 windows // 4


@pytest.mark.parametrize(
    ("stream", "data", "message"),
    [
        ({}, {"path": "x.nc"}, "either path"),
        ({}, {"draw": {**DRAW, "samples": 2}}, "samples 2 is less than stream.reservoir 3"),
        ({}, {"draw": {"samples": 4, "parameters": {"lenth": [18.0]}}}, "not a parameter"),
        ({}, {"draw": {**DRAW, "method": "grid"}}, "one corner of the grid first"),
        ({"mode": "active"}, {}, "uncertainty.members >= 2"),
        ({"mode": "active"}, {"parameters": []}, "must have all"),
        ({"mode": "active"}, {"leads": [1, 2]}, "leads has several"),
        ({"mode": "stored"}, {}, "reservoir: not used"),
        ({}, {"generator": {"name": "tight_binding_carbon"}}, "files, not fields"),
        ({}, {"mask": "missing"}, "mask: not used with data.generator"),
    ],
)
def test_what_cannot_feed_a_training_is_refused(online, stream, data, message):
    with pytest.raises(ConfigError, match=message):
        api.load(online(stream, data))


def test_several_processes_are_refused(online, monkeypatch, tmp_path):
    config = api.load(online())[1]
    monkeypatch.setattr(streaming, "world_size", lambda: 2)
    with pytest.raises(ConfigError, match="feeds one process"):
        streaming.make_files(config, tmp_path)


def test_a_stream_that_differs_from_the_files_is_refused(online, monkeypatch):
    from scitoolkit.generators.extract import Extract

    plain = Extract.arrays

    def other(self, generator, sample):
        return {n: v + 1 for n, v in plain(self, generator, sample).items()}

    monkeypatch.setattr(Extract, "arrays", other)
    with pytest.raises(DataError, match="differs from its file"):
        api.train(online())


def test_the_first_check_writes_nothing(online, tmp_path):
    told = api.check(online())
    assert told["loader"]["reservoir_bytes"] == 3 * (6 * 16 + 6) * 4
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").glob("*/*"))
