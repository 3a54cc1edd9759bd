from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from scitoolkit.core.config import (
    Config,
    ConfigProblems,
    DataPath,
    Document,
    config_keys,
    dump_config,
    load_config,
    read_document,
)
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.jobs import domains
from scitoolkit.core.plugins import Choice, Kind
from scitoolkit.core.suggest import SAME_MEANING, nearest_key

optimizers: Kind[type[Config]] = Kind("test optimizer")


@optimizers.register("adamw")
class AdamW(Config):
    name: Literal["adamw"] = "adamw"
    lr: float = Field(1e-3, gt=0)
    weight_decay: float = 0.0


@optimizers.register("sgd")
class SGD(Config):
    name: Literal["sgd"] = "sgd"
    lr: float = Field(0.1, gt=0)
    momentum: float = 0.9


class Training(Config):
    epochs: int = Field(10, ge=1)
    batch_size: int = 32
    clip_norm: float | None = None
    precision: Literal["float32", "bf16", "fp16"] = "float32"
    log_every: int = 10
    optimizer: Annotated[Config, Choice(optimizers)] = AdamW()


class Data(Config):
    path: DataPath
    variable: str = "sst"


class Model(Config):
    cutoff: float = 5.0
    rank: int | float | Literal["forecast"] = 5
    hidden: int = 64


class Top(Config):
    data: Data
    model: Model = Model()
    training: Training = Training()


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


@pytest.fixture
def good(tmp_path):
    return write(tmp_path / "train.yaml", "data:\n  path: sst.nc\ntraining:\n  epochs: 3\n")


def problems(path: Path, overrides=()) -> dict[str, str]:
    with pytest.raises(ConfigProblems) as caught:
        load_config(Top, path, overrides)
    return {problem.key: str(problem) for problem in caught.value.problems}


def test_precedence_is_defaults_then_file_then_overrides(good):
    config = load_config(Top, good, ["training.batch_size=8", "model.rank=forecast"])
    assert (config.training.log_every, config.training.epochs) == (10, 3)
    assert (config.training.batch_size, config.model.rank) == (8, "forecast")


def test_every_error_of_a_file_is_reported_at_once_with_its_line(tmp_path):
    path = write(
        tmp_path / "bad.yaml",
        "data:\n  variabel: sst\ntraining:\n  lr: 1e-3\n  epochs: 0\n"
        "  precision: bf61\n  optimizer:\n    name: adam\n",
    )
    found = problems(path)
    assert set(found) == {
        "data.path",
        "data.variabel",
        "training.lr",
        "training.epochs",
        "training.precision",
        "training.optimizer.name",
    }
    assert "missing" in found["data.path"]
    assert f"{path}:2" in found["data.variabel"]
    assert "did you mean data.variable?" in found["data.variabel"]
    assert f"{path}:4" in found["training.lr"]
    assert "did you mean training.optimizer.lr?" in found["training.lr"]
    assert "got 0" in found["training.epochs"]
    assert "did you mean bf16?" in found["training.precision"]
    assert "did you mean adamw?" in found["training.optimizer.name"]


def test_an_override_is_blamed_on_the_command_line(good):
    found = problems(good, ["training.epoch=3"])
    assert found["training.epoch"].startswith("command line: training.epoch: unknown key")
    assert "training.epochs" in found["training.epoch"]


def test_members_of_a_union_fail_in_one_line(good):
    found = problems(good, ["model.rank=many"])
    assert list(found) == ["model.rank"]
    assert "'forecast'" in found["model.rank"]


def test_keys_inside_a_chosen_component_carry_no_tag(good):
    found = problems(good, ["training.optimizer.name=sgd", "training.optimizer.lr=-1"])
    assert list(found) == ["training.optimizer.lr"]


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        ("training.lr", "training.optimizer.lr"),
        ("training.learning_rate", "training.optimizer.lr"),
        ("lr", "training.optimizer.lr"),
        ("optimizer.lr", "training.optimizer.lr"),
        ("training.optimizer.learning_rat", "training.optimizer.lr"),
        ("training.max_epochs", "training.epochs"),
        ("training.epoch", "training.epochs"),
        ("epochs", "training.epochs"),
        ("model.r_max", "model.cutoff"),
        ("r_max", "model.cutoff"),
        ("model.rcut", "model.cutoff"),
        ("data.batch_size", "training.batch_size"),
        ("training.batchsize", "training.batch_size"),
        ("training.wd", "training.optimizer.weight_decay"),
        ("training.gradient_clip_val", "training.clip_norm"),
        ("data.file", "data.path"),
        ("data.var", "data.variable"),
        ("model.n_components", "model.rank"),
        ("model.hidden_size", "model.hidden"),
        ("training.optim", "training.optimizer"),
    ],
)
def test_nearest_key_on_real_typos(typo, meant):
    assert nearest_key(typo, config_keys(Top)) == meant


def test_relative_paths_mean_beside_the_file_or_the_current_folder(good, tmp_path, monkeypatch):
    assert load_config(Top, good).data.path == tmp_path / "sst.nc"
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    assert load_config(Top, good, ["data.path=x.nc"]).data.path == elsewhere / "x.nc"


def test_the_resolved_config_is_a_valid_input(good, tmp_path):
    config = load_config(Top, good, ["training.optimizer.name=sgd"])
    again = load_config(Top, write(tmp_path / "resolved.yaml", dump_config(config)))
    assert again == config


@given(
    st.builds(
        Training,
        epochs=st.integers(1, 10**6),
        clip_norm=st.none() | st.floats(0, 1e6),
        optimizer=st.builds(AdamW, lr=st.floats(1e-12, 1e3)) | st.builds(SGD),
    )
)
def test_dump_and_load_round_trip(config):
    assert Training.model_validate(yaml.safe_load(dump_config(config))) == config


@pytest.mark.parametrize("text", ["lr: 1e-3", "lr: 1E-3", "lr: 5e-5", "lr: 0.001", "lr: 1.e-3"])
def test_exponents_are_numbers(tmp_path, text):
    assert isinstance(read_document(write(tmp_path / "a.yaml", text)).raw["lr"], float)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "not valid YAML"),
        ("- 1\n- 2\n", "key: value"),
        ("a:\n  b: 1\n  b: 2\n", "'a.b' is written twice"),
    ],
)
def test_files_that_are_no_configuration(tmp_path, text, message):
    with pytest.raises(ConfigError, match=message):
        read_document(write(tmp_path / "a.yaml", text))


def test_a_missing_file_names_its_nearest_neighbour(good):
    with pytest.raises(ConfigError, match=r"train\.yaml"):
        read_document(good.with_name("trian.yaml"))


@pytest.mark.parametrize(
    "text",
    [
        "training",
        "=3",
        "training..lr=3",
        "data.path.x=1",
        "~",
        "~nosuch",
        "~training.nosuch",
        "~a.b.c",
    ],
)
def test_overrides_that_are_no_setting(good, text):
    with pytest.raises(ConfigError):
        read_document(good, [text])


def test_yaml_tags_do_not_run_code(tmp_path):
    path = write(tmp_path / "a.yaml", "a: !!python/object/apply:os.system ['true']\n")
    with pytest.raises(ConfigError, match="not valid YAML"):
        read_document(path)


class Division(Config):
    validation: int = 2
    seed: int = 0


class Moved(Config):
    renamed: ClassVar[Mapping[str, str]] = {"data.validation": "split.validation", "rate": "lr"}

    data: Data
    split: Division = Division()
    lr: float = 0.1


def test_a_former_key_moves_to_its_section_with_a_warning(tmp_path, caplog):
    text = "data: {path: a.nc, validation: 5}\nsplit: {seed: 3}\nrate: 1.0\n"
    path = write(tmp_path / "former.yaml", text)
    config = load_config(Moved, path)
    assert (config.split.validation, config.split.seed, config.lr) == (5, 3, 1.0)
    assert "'data.validation' is now called 'split.validation'" in caplog.text
    now = "data: {path: a.nc}\nsplit: {seed: 3, validation: 5}\nlr: 1.0\n"
    assert load_config(Moved, write(tmp_path / "now.yaml", now)) == config


def test_a_key_under_both_names_is_refused(tmp_path):
    text = "data: {path: a.nc, validation: 5}\nsplit: {validation: 3}\n"
    with pytest.raises(ConfigProblems, match=r"write 'split\.validation' only"):
        load_config(Moved, write(tmp_path / "both.yaml", text))


@pytest.mark.parametrize("domain", ["potentials", "mesh_transport", "emulation", "generate"])
def test_former_keys_of_the_shipped_domains_are_accepted(domain):
    former, now = {
        "potentials": (
            {
                "surrogate": "potentials",
                "data": {"train": ["/a.xyz"], "seed": 3, "validation": 0.2},
                "model": {"name": "mace"},
            },
            {
                "data": {"path": ["/a.xyz"]},
                "split": {"validation": 0.2},
                "seed": 3,
                "model": {"name": "mace"},
            },
        ),
        "generate": (
            {"generator": {"name": "kuramoto_sivashinsky"}, "draw": {"seed": 3}},
            {"generator": {"name": "kuramoto_sivashinsky"}, "seed": 3},
        ),
        "mesh_transport": (
            {"data": {"path": "/a.h5", "validation": 3, "test": 1}},
            {"data": {"path": "/a.h5"}, "split": {"validation": 3, "test": 1}},
        ),
        "emulation": (
            {"data": {"path": "/a.h5", "inputs": ["u"], "outputs": ["u"]}, "weights": "int8"},
            {"data": {"path": "/a.h5", "inputs": ["u"], "outputs": ["u"]}, "weights_dtype": "int8"},
        ),
    }[domain]
    schema = domains.get(domain).config_class
    assert Document(raw=former).validate(schema) == Document(raw=now).validate(schema)


def test_another_programs_key_is_read_as_ours_with_a_notice(tmp_path, caplog):
    caplog.set_level("INFO", logger="scitoolkit")
    text = "data: {path: a.nc}\ntraining: {max_epochs: 3, optimizer: {learning_rate: 0.5}}\n"
    config = load_config(Top, write(tmp_path / "theirs.yaml", text))
    assert (config.training.epochs, config.training.optimizer.lr) == (3, 0.5)
    notices = [r.getMessage() for r in caplog.records if "is read as" in r.getMessage()]
    assert sorted(notices) == [
        "configuration key 'learning_rate' is read as 'lr'",
        "configuration key 'max_epochs' is read as 'epochs'",
    ]
    both = text.replace("max_epochs: 3", "max_epochs: 3, epochs: 3")
    with pytest.raises(ConfigProblems, match="'max_epochs' is another name of 'epochs'"):
        load_config(Top, write(tmp_path / "both.yaml", both))


def test_words_of_one_meaning_are_synonyms_too():
    for theirs, ours in SAME_MEANING.items():
        assert nearest_key(theirs.lower(), [ours, "unrelated"]) == ours


def test_the_seed_of_the_job_is_that_of_sections_that_set_none():
    schema = domains.get("potentials").config_class
    raw = {"data": {"path": ["/a.xyz"]}, "model": {"name": "mace"}, "seed": 5}
    config = Document(raw=raw).validate(schema)
    assert (config.model.seed, config.training.seed) == (5, 5)
    config = Document(raw={**raw, "training": {"seed": 2}}).validate(schema)
    assert (config.model.seed, config.training.seed) == (5, 2)
    assert Document(raw=config.model_dump(mode="json")).validate(schema) == config


@pytest.mark.parametrize(
    ("workflow", "key", "member"),
    [
        ("field_surrogate", "model", "fno"),
        ("field_surrogate", "model", "resnet"),
        ("acac_mace", "model", "se_e2_a"),
        ("water_deepmd", "model", "mace"),
        ("node_classification", "model", "gin"),
        ("sst_forecast", "training.optimizer", "sgd"),
    ],
)
def test_another_component_is_selected_as_the_fix_says(workflow, key, member):
    from scitoolkit.api import load

    problems = ""
    try:
        load(workflow, [f"{key}.name={member}"])
    except ConfigProblems as error:  # not where the file has no key of another member
        problems = str(error)
    assert not problems or problems.endswith(f"Fix: {key}={member}")
    assert problems.count("which has") == bool(problems)
    _, config = load(workflow, [f"{key}={member}"])
    for part in key.split("."):
        config = getattr(config, part)
    assert config.name == member


def test_a_component_named_in_the_file_has_no_fix_for_the_command_line(tmp_path):
    from scitoolkit.api import config_file, load

    text = config_file("field_surrogate").read_text(encoding="utf-8")
    path = write(tmp_path / "a.yaml", text.replace("model: {name: unet", "model: {name: fno"))
    with pytest.raises(ConfigProblems, match=r"model\.widths: not a key of `fno`") as problems:
        load(path)
    assert "Fix" not in str(problems.value)


def test_keys_of_a_component_written_as_its_name():
    document = read_document(None, ["model=fno", "model.width=16", "a.b=x", "a.b.c=1"])
    assert document.raw["model"] == {"name": "fno", "width": 16}
    assert document.raw["a"] == {"b": {"name": "x", "c": 1}}


def test_a_key_is_removed(good):
    raw = read_document(good).raw
    section, key = next((s, k) for s, keys in raw.items() if isinstance(keys, dict) for k in keys)
    shorter = read_document(good, [f"~{section}.{key}"]).raw
    assert shorter[section] == {k: v for k, v in raw[section].items() if k != key}
    assert section not in read_document(good, [f"~{section}"]).raw
    again = read_document(good, [f"~{section}.{key}", f"{section}.{key}=1"]).raw
    assert again[section][key] == 1
    with pytest.raises(ConfigError, match=f"Allowed: .*~{section}.{key}"):
        read_document(good, [f"~{section}.nosuch"])


def test_a_section_that_is_not_chosen_by_name():
    from scitoolkit.api import load

    with pytest.raises(ConfigProblems, match=r"not chosen by name.*model\.encoder\.name"):
        load("rayleigh_benard", ["model.name=fno"])
