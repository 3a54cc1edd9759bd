"""Every registered space keeps its contract; codecs can be searched."""

from __future__ import annotations

import numpy as np
import pytest
import yaml

from scitoolkit import api
from scitoolkit.core.config import ConfigProblems
from scitoolkit.core.content import content_root
from scitoolkit.core.errors import ConfigError
from scitoolkit.search import load_history, spaces
from scitoolkit.search.config import FinalConfig
from scitoolkit.search.objective import TrainedTrial
from scitoolkit.testing import SpaceContract

SPACES = {
    "pod_lstm": "sst_forecast",
    "pod_lstm_full": "sst_forecast",
    "mace": "acac_mace",
    "nequip": "acac_mace",
    "se_e2_a": "water_deepmd",
    "meshfreeflownet": "rayleigh_benard",
    "compressor": "compress_snapshot",
}


class TestSpaces(SpaceContract):
    @pytest.fixture(params=spaces.names())
    def space(self, request):
        return request.param

    @pytest.fixture
    def configuration(self, space, tmp_path):
        file = content_root("workflows") / SPACES[space] / "train.yaml"
        if space != "nequip":
            return file
        # No shipped workflow: the data of acac_mace under another model.
        raw = yaml.safe_load(file.read_text()) | {"model": {"name": "nequip"}}
        (tmp_path / "nequip.yaml").write_text(yaml.safe_dump(raw))
        return tmp_path / "nequip.yaml"


def test_a_budget_of_epochs_is_refused_where_steps_are_set():
    file = content_root("workflows") / "water_deepmd" / "train.yaml"
    with pytest.raises(ConfigError, match=r"settings: \[training.steps=\]"):
        TrainedTrial(str(file)).resolve({}, budget=3)
    _, config = TrainedTrial(str(file), ("training.steps=",)).resolve({}, budget=3)
    assert config.training.epochs == 3


@pytest.fixture
def codec_search(tmp_path):
    """Return a file that searches codecs of a small field, with settings beside the defaults."""
    axis = np.linspace(0, 3, 24)
    field = np.sin(axis)[:, None, None] * np.cos(2 * axis)[:, None] + 0.2 * np.sin(5 * axis)
    np.save(tmp_path / "field.npy", field.astype(np.float32))
    base = {"domain": "compression", "data": {"path": str(tmp_path / "field.npy")}}
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(base))
    document = {
        "domain": "search",
        "config": "base.yaml",
        "space": {"codec": ["dyadic", "sz3", "sperr", "zfp"], "enhancer": ["none"]},
        "objectives": [{"name": "accuracy_gain", "direction": "max"}, {"name": "bytes"}],
        "budget": {"trials": 9},
        "final": {"train": False, "finalists": 0},
        "run": {"root": str(tmp_path / "runs")},
    }
    (tmp_path / "search.yaml").write_text(yaml.safe_dump(document))
    return tmp_path / "search.yaml"


def test_codecs_are_searched_by_accuracy_gain(codec_search):
    run = api.search(codec_search).path
    gains = {t.configuration["codec"]: t.metrics["accuracy_gain"] for t in load_history(run).done}
    assert gains.keys() == {"dyadic", "sz3", "sperr", "zfp"}
    assert min(gains.values()) > 0, "each saves bits over coding values one by one"


@pytest.mark.parametrize("space", ["{codec: [interpolation, zfp]}", "{enhancer: [none]}"])
def test_a_resume_with_another_space_is_refused_and_leaves_the_settings(codec_search, space):
    run = api.train(codec_search, ["budget.trials=2", "space.codec=[dyadic, sperr]"])
    before, log = run.config_path.read_text(), (run.path / "trials.jsonl").read_text()
    with pytest.raises(ConfigError, match=r"another search|space"):
        api.train(codec_search, [f"space={space}"], resume=True)
    assert run.config_path.read_text() == before
    assert (run.path / "trials.jsonl").read_text() == log
    wider = "space.codec=[dyadic, sperr, zfp]"
    again = api.train(codec_search, [wider, "budget.trials=3"], resume=True)
    assert again.path == run.path
    assert "zfp" in run.config_path.read_text()
    assert load_history(run.path).num_done == 3


@pytest.mark.parametrize(
    ("final", "reason"),
    [
        ({"finalists": 0, "seeds": 5}, "seeds: not used with finalists: 0"),
        ({"train": False, "settings": ["ensemble=3"]}, "settings: not used with train: false"),
    ],
)
def test_settings_of_the_final_training_that_nothing_reads_are_refused(final, reason):
    with pytest.raises(ConfigProblems, match=reason):
        FinalConfig(**final)
