"""Settings of potentials: other programs' names, and names of labels that nothing reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from scitoolkit import api
from scitoolkit.core.config import ConfigProblems
from scitoolkit.core.errors import ConfigError
from scitoolkit.io.atoms import LabelConfig, check_label_names
from scitoolkit.ops.neighbours import lists
from scitoolkit.potentials import (
    MaceConfig,
    NequipConfig,
    PotentialConfig,
    SeE2AConfig,
    ZblConfig,
)

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("model", "theirs", "ours"),
    [
        (MaceConfig, "num_channels", "channels"),
        (MaceConfig, "max_ell", "lmax"),
        (MaceConfig, "max_L", "lmax_hidden"),
        (MaceConfig, "num_interactions", "layers"),
        (MaceConfig, "num_radial_basis", "num_basis"),
        (MaceConfig, "r_max", "cutoff"),
        (NequipConfig, "l_max", "lmax"),
        (NequipConfig, "num_layers", "layers"),
        (NequipConfig, "num_bessels", "num_basis"),
        (SeE2AConfig, "rcut_smth", "cutoff_smooth"),
        (SeE2AConfig, "axis_neuron", "axis_neurons"),
        (SeE2AConfig, "numb_fparam", "frame_parameters"),
    ],
)
def test_names_of_other_programs_with_our_meaning_are_accepted(model, theirs, ours):
    settings = {**model.example, "precision": "float64"}
    settings.pop(ours, None)
    assert model(**settings, **{theirs: 2}) == model(**settings, **{ours: 2})
    with pytest.raises(ConfigProblems, match=f"'{theirs}' is another name of '{ours}'"):
        model(**settings, **{theirs: 2, ours: 2})


@pytest.mark.parametrize(
    ("model", "theirs", "ours"),
    [
        (NequipConfig, "num_features", "channels"),
        (NequipConfig, "radial_mlp_width", "radial_"),
        (MaceConfig, "MLP_irreps", "readout_width"),
        (MaceConfig, "hidden_irreps", "lmax_hidden"),
    ],
)
def test_names_with_another_meaning_are_only_suggested(model, theirs, ours):
    with pytest.raises(ConfigProblems, match=f"did you mean {ours}"):
        model(**{theirs: 3})


def test_names_of_labels_are_refused_where_files_have_none():
    water = [ROOT / "datasets" / "water_deepmd" / "data_0"]
    frames = [ROOT / "datasets" / "acac" / "train_300K.xyz"]
    check_label_names(water, LabelConfig())
    check_label_names([*water, *frames], LabelConfig(forces_key="REF_forces"))
    with pytest.raises(ConfigError, match="forces_key='REF_forces' is not read from a deepmd"):
        check_label_names(water, LabelConfig(forces_key="REF_forces"))


def test_validate_refuses_names_of_labels_that_nothing_reads():
    path = ROOT / "workflows" / "water_deepmd"
    _, found = api.validate(path, ["data.labels.energy_key=REF_energy"])
    assert [f.level for f in found] == ["error"]
    assert "data.labels.energy_key" in str(found[0])


def test_packages_that_settings_need_are_named():
    _, config = api.load(ROOT / "workflows" / "acac_mace")
    assert config.data.required_packages() == ("ase",)
    _, config = api.load(ROOT / "workflows" / "water_deepmd")
    assert config.data.required_packages() == ()
    assert ZblConfig().required_packages() == ("ase",)


def test_neighbour_lists_need_vesin_without_a_compiler(monkeypatch):
    workflow = ROOT / "workflows" / "water_deepmd"
    assert api.load(workflow)[1].required_packages() == ()
    monkeypatch.setenv("CC", "no-such-compiler")
    for prebuilt, needed in ((True, ()), (False, ("vesin",))):
        monkeypatch.setattr(lists, "available", lambda prebuilt=prebuilt: prebuilt)
        assert api.load(workflow)[1].required_packages() == needed


def test_epochs_beside_steps_are_a_warning():
    _, found = api.validate(ROOT / "workflows" / "water_deepmd", ["training.epochs=7"])
    assert [(f.level, f.key) for f in found] == [("warning", "training.epochs")]


def test_one_file_is_written_without_a_list(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for data in ("mine.xyz", ["mine.xyz"]):
        _, config = api.load("fine_tune", [f"data.path={data}", "start.former=old.xyz"])
        assert [path.name for path in config.data.path] == ["mine.xyz"]
        assert [path.name for path in config.start.former] == ["old.xyz"]
    (tmp_path / "job.yaml").write_text(
        "domain: potentials\ndata: {path: a.xyz, test: b.xyz}\nmodel: {name: mace}\n"
    )
    _, config = api.load(tmp_path / "job.yaml")
    assert (config.data.path, config.data.test) == ([tmp_path / "a.xyz"], [tmp_path / "b.xyz"])


@pytest.mark.parametrize(
    ("model", "loss", "expected"),
    [
        ("mace", {}, (10, 100, 100, 100)),
        ("nequip", {"start_pref_v": 1.0}, (10, 100, 100, 100)),
        ("mace", {"start_pref_f": 0.0, "limit_pref_f": 0.0}, (10, 100, 0, 0)),
        ("se_e2_a", {}, (0.02, 1, 1000, 1)),
    ],
)
def test_weights_that_are_not_written_are_those_of_the_kind_of_model(model, loss, expected):
    written = {"data": {"path": ["a.xyz"]}, "model": {"name": model}, "loss": loss}
    made = PotentialConfig.model_validate(written).loss
    weights = (made.start_pref_e, made.limit_pref_e, made.start_pref_f, made.limit_pref_f)
    assert weights == expected
    assert made.start_pref_v == loss.get("start_pref_v", 0.0)
