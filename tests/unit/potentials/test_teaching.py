from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
import yaml

from scitoolkit import api
from scitoolkit.core.config import ConfigProblems
from scitoolkit.core.errors import ConfigError, DataError
from scitoolkit.io import open_atoms
from scitoolkit.potentials import teaching
from scitoolkit.potentials.committee import model_deviation
from scitoolkit.potentials.saved import load_model
from scitoolkit.potentials.stages import PotentialStages
from scitoolkit.surrogate.samples import ProducedSamples

pytest.importorskip("ase")

COMMITTEE = {"members": 2, "steps": 3, "first": 2, "per_round": 2, "candidates": 3}


def document(folder, committee=COMMITTEE, **changes):
    """A job that takes seconds: eight atoms of carbon, a small Deep Potential."""
    settings = {
        "domain": "potentials",
        "run": {"root": str(folder)},
        "data": {
            "generator": {
                "name": "tight_binding_carbon",
                "repeats": 1,
                "frames": 1,
                "temperature": 0.3,
            },
            "draw": {"samples": 5, "parameters": {"displacement": {"low": 0.02, "high": 0.2}}},
            "teaching": {"validation": 1, "test": 2, "committee": committee},
        },
        "model": {
            "name": "se_e2_a",
            "cutoff": 2.5,
            "cutoff_smooth": 1.0,
            "sel": "auto",
            "embedding": [4, 8],
            "axis_neurons": 4,
            "fitting": [8],
        },
        "training": {
            "steps": 4,
            "batch_size": 1,
            "progress": False,
            "checkpoint": {"every_steps": 2},
        },
    }
    for key, value in changes.items():
        section, _, name = key.partition("__")
        if name:
            settings[section][name] = value
        else:
            settings[section] = value
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("taught")
    return api.run(document(folder))


def test_one_command_labels_trains_and_compares_with_the_teacher(run):
    results = json.loads((run.path / "results.json").read_text())
    assert results["metrics"]["configurations"] == 2
    assert results["metrics"]["force_rmse"] > 0
    assert [t["title"] for t in results["tables"]][-1] == "Committee"
    frames = open_atoms(sorted((run.path / "frames").glob("*.xyz")))
    assert len(frames) == 1 + 2 + 5
    assert api.evaluate(run.path).metrics["configurations"] == 2


def test_the_labelled_sample_is_the_candidate_of_most_disagreement(run):
    _, config = api.load(run.path / "config.yaml")
    done = teaching.rounds(run.path)
    assert [each.labelled for each in done] == [2, 4]
    assert [sorted(each.candidates) for each in done] == [[5, 6], [7]]
    samples = teaching._samples(config, run.path / "frames")
    files = [run.path / "frames" / f"sample_{n:05d}.xyz" for n in range(8)]
    reading = teaching._reading(config, files[3:5], files[:1], [])
    members = [teaching._member(PotentialStages(), reading, number, 5) for number in range(2)]
    for number, taken in done[0].candidates.items():
        each = samples.candidates(number, 3)
        spread = [teaching._disagreement(members, frames[0]) for frames in each]
        assert taken == int(np.argmax(spread))
        labelled = open_atoms(files[number])[0]
        assert np.allclose(labelled.positions, each[taken][0].positions, atol=1e-8)
        assert model_deviation(members, labelled)["force_max"] == pytest.approx(max(spread))


def test_a_killed_round_is_resumed_with_the_same_choice_and_weights(run, tmp_path, monkeypatch):
    path, made = document(tmp_path), ProducedSamples.files

    def killed(self, count):
        if count > 5:
            raise KeyboardInterrupt
        return made(self, count)

    monkeypatch.setattr(ProducedSamples, "files", killed)
    with pytest.raises(KeyboardInterrupt):
        api.train(path)
    monkeypatch.setattr(ProducedSamples, "files", made)
    again = api.train(path, resume=True)
    assert teaching.rounds(again.path) == teaching.rounds(run.path)
    for one, other in zip(*(load_model(r.path)[0].parameters() for r in (run, again)), strict=True):
        assert torch.equal(one, other)


def test_more_samples_after_a_kill_are_all_chosen_by_the_committee(tmp_path, monkeypatch):
    path, made = document(tmp_path), ProducedSamples.files

    def killed(self, count):
        if count == self.total:
            raise KeyboardInterrupt
        return made(self, count)

    monkeypatch.setattr(ProducedSamples, "files", killed)
    with pytest.raises(KeyboardInterrupt):
        api.train(path)
    monkeypatch.setattr(ProducedSamples, "files", made)
    more = {"samples": 8, "parameters": {"displacement": {"low": 0.02, "high": 0.2}}}
    again = api.train(document(tmp_path, data__draw=more), resume=True)
    chosen = [sorted(each.candidates) for each in teaching.rounds(again.path)]
    assert chosen == [[5, 6], [7], [8, 9], [10]]
    _, config = api.load(again.path / "config.yaml")
    assert len(teaching.files_of(config, again.path)[3:]) == 8


@pytest.mark.parametrize("committee", [None, COMMITTEE])
@pytest.mark.parametrize("samples", [4, 9])
def test_another_number_of_samples_after_a_checkpoint_is_refused_before_labelling(
    samples, committee, tmp_path, monkeypatch
):
    run = api.train(document(tmp_path, committee))
    files = sorted((run.path / "frames").glob("*.xyz"))
    monkeypatch.setattr(ProducedSamples, "files", lambda *_: pytest.fail("labels are made"))
    monkeypatch.setattr(teaching, "_chosen", lambda *_: pytest.fail("members are trained"))
    draw = {"samples": samples, "parameters": {"displacement": {"low": 0.02, "high": 0.2}}}
    message = rf"trained on 5 samples; {samples} are configured.*data.draw.samples=5"
    with pytest.raises(ConfigError, match=message):
        api.train(document(tmp_path, committee, data__draw=draw), resume=True)
    assert sorted((run.path / "frames").glob("*.xyz")) == files
    monkeypatch.undo()
    files[4].unlink()
    api.train(document(tmp_path, committee, training__steps=6), resume=True)
    assert files[4].is_file()


def test_more_samples_after_the_committee_agreed_change_nothing(tmp_path):
    agreeing = {**COMMITTEE, "tolerance": 1e6}
    run = api.train(document(tmp_path, agreeing))
    more = {"samples": 9, "parameters": {"displacement": {"low": 0.02, "high": 0.2}}}
    path = document(tmp_path, agreeing, data__draw=more, training__steps=6)
    again = api.train(path, resume=True)
    assert again.path == run.path
    assert len(list((run.path / "frames").glob("*.xyz"))) == 3 + 2 + 2


def test_a_copied_model_says_where_its_frames_are(run, tmp_path):
    shutil.copytree(run.path / "model", tmp_path / "model")
    with pytest.raises(DataError, match="the run directory, or a file of frames"):
        api.evaluate(tmp_path / "model")


@pytest.fixture(scope="module")
def weights(tmp_path_factory):
    """A trained model to start from."""
    return api.train(document(tmp_path_factory.mktemp("weights"), None)).path


@pytest.mark.parametrize("perturbation", [0.0, 0.01])
def test_members_that_start_from_the_same_weights_are_perturbed(
    perturbation, weights, tmp_path, caplog
):
    committee = {**COMMITTEE, "perturbation": perturbation}
    path = document(
        tmp_path,
        committee,
        model={"name": "se_e2_a"},
        start={
            "path": str(weights),
            "frozen": ["descriptors.*"],
        },
    )
    caplog.set_level("INFO")
    run = api.run(path)
    assert ("without perturbation" in caplog.text) == (not perturbation)
    note = json.loads((run.path / "results.json").read_text())["tables"][-1]["note"]
    assert ("far below the error" if not perturbation else "noise of 0.01") in note
    _, config = api.load(path)
    files = [run.path / "frames" / f"sample_{n:05d}.xyz" for n in range(8)]
    reading = teaching._reading(config, files[3:5], files[:1], [])
    source = {k: v.detach() for k, v in load_model(weights)[0].named_parameters()}
    rate = reading.training.optimizer.model_copy(update={"lr": 1e-12})
    still = reading.training.model_copy(update={"optimizer": rate})
    wanted = reading.model_copy(update={"training": still})
    members = [teaching._member(PotentialStages(), wanted, n, 5).state_dict() for n in range(2)]
    for name, value in source.items():
        for member in members:
            change = (member[name] - value).norm() / value.norm()
            expected = 0.0 if name.startswith("descriptors") else perturbation
            if value.numel() > 8:
                assert change == pytest.approx(expected, rel=0.5, abs=1e-8), name
    apart = (members[0]["fitting.weight.0"] - members[1]["fitting.weight.0"]).abs().max()
    assert (apart > 1e-4) == bool(perturbation)


def test_a_committee_that_agrees_stops_the_teacher(tmp_path):
    run = api.train(document(tmp_path, {**COMMITTEE, "tolerance": 1e6}))
    assert [each.labelled for each in teaching.rounds(run.path)] == [2]
    assert len(list((run.path / "frames").glob("*.xyz"))) == 3 + 2 + 2


def test_without_a_committee_samples_are_drawn_at_random(tmp_path):
    path = document(tmp_path, None)
    assert api.validate(path)[1] == []
    told = api.check(path)
    assert told["samples"] == {"train": 2, "validation": 1}
    run = api.run(path)
    assert len(list((run.path / "frames").glob("*.xyz"))) == 8
    assert not teaching.rounds(run.path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"data__path": ["a.xyz"]}, "either path, for files, or generator"),
        ({"data__generator": None}, "either path, for files, or generator"),
        ({"data__generator": {"name": "lorenz96"}}, "makes no frames of atoms"),
        ({"data__draw": {"samples": 1}}, "less than teaching.committee.first"),
        (
            {
                "data__draw": {
                    "samples": 4,
                    "method": "grid",
                    "parameters": {"displacement": {"low": 0.1, "high": 0.2}},
                }
            },
            "method grid",
        ),
        (
            {
                "data__draw": {
                    "samples": 4,
                    "method": "grid",
                    "parameters": {"displacement": {"low": 0.1, "high": 0.2}},
                },
                "data__teaching": {"validation": 1, "test": 2},
            },
            "method grid",
        ),
        (
            {"data__draw": {"samples": 4, "parameters": {"displacement": {"low": 0.1, "high": 9}}}},
            "displacement",
        ),
    ],
)
def test_what_does_not_go_together_is_refused_before_work(changes, message, tmp_path):
    with pytest.raises(ConfigProblems, match=message):
        api.load(document(tmp_path, **changes))


def test_generators_without_structures_say_so():
    from scitoolkit.generators.lorenz96 import Lorenz96

    with pytest.raises(ConfigError, match="no frames without labels"):
        Lorenz96().geometries(0)
