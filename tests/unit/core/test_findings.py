"""`validate` checks more than the schema: packages, sizes, files, and the domain's checks."""

from __future__ import annotations

import importlib.util

import pytest

from scitoolkit.cli.main import run_cli
from scitoolkit.core.config import Config
from scitoolkit.core.errors import ConfigError
from scitoolkit.core.findings import missing_packages
from scitoolkit.core.memory import memory_errors


class Needy(Config):
    requires = ("a_package_that_is_nowhere",)


class Whole(Config):
    section: Needy = Needy()


def test_missing_packages_are_named_with_the_section_that_needs_them():
    (found,) = missing_packages(Whole())
    assert (found.key, found.level) == ("section", "error")
    assert "'a_package_that_is_nowhere'" in found.message


class Several(Config):
    listed: list[Needy]
    named: dict[str, Needy]


def test_sections_in_lists_and_mappings_are_checked_too():
    several = Several(listed=[Needy()], named={"one": Needy()})
    assert [found.key for found in missing_packages(several)] == ["listed", "named"]


ALLOCATIONS = [
    "DefaultCPUAllocator: can't allocate memory: you tried to allocate 5732000000000 bytes",
    "Unable to allocate 5.21 TiB for an array",
]


@pytest.mark.parametrize("text", ALLOCATIONS)
def test_a_failed_allocation_is_told_in_words(text):
    with pytest.raises(ConfigError, match="does not fit into the memory"), memory_errors():
        raise RuntimeError(text)


def test_other_errors_are_left_as_they_are():
    with pytest.raises(RuntimeError, match="shapes"), memory_errors():
        raise RuntimeError("shapes cannot be multiplied")


@pytest.mark.parametrize("command", [["validate"], ["train", "--dry-run"]])
def test_a_model_that_no_machine_holds_is_refused_in_words(command, capsys):
    arguments = [*command, "sst_forecast", "model.hidden=1000000000"]
    assert run_cli(arguments) == 2
    err = capsys.readouterr().err
    assert "does not fit into the memory" in err
    assert "Traceback" not in err


@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")  # torch_geometric
def test_a_dry_run_of_a_model_too_large_to_build_is_refused_in_words(capsys):
    assert run_cli(["train", "node_classification", "model.hidden=1000000000", "--dry-run"]) == 2
    err = capsys.readouterr().err
    assert "does not fit into the memory (5.2 TiB" in err
    assert "Traceback" not in err


def test_validate_needs_sympy_for_equations(monkeypatch, capsys):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == "sympy" else find(n))
    assert run_cli(["validate", "rayleigh_benard"]) == 2
    assert "pde: needs the package 'sympy'" in capsys.readouterr().err


def test_validate_measures_the_equations_on_the_true_data(capsys):
    assert run_cli(["validate", "rayleigh_benard"]) == 0
    err = capsys.readouterr().err
    assert "equations on the true data" in err
    for name in ("continuity", "buoyancy", "momentum_x", "momentum_z"):
        assert name in err


MISSING = [
    ("sst_forecast", "data.path={}/none.nc", "data.path"),
    ("sst_forecast", "data.path={}/none*.nc", "data.path"),
    ("rayleigh_benard", "data.test={}/none.h5", "data.test"),
    ("water_deepmd", "data.path=[{}/none.xyz]", "data.path"),
    ("compress_snapshot", "data.path={}/none.h5", "data.path"),
    ("sst_search", "config={}/none.yaml", "config"),
]


@pytest.mark.parametrize(("workflow", "setting", "key"), MISSING)
def test_missing_inputs_end_validate_like_run(tmp_path, capsys, workflow, setting, key):
    setting = setting.format(tmp_path)
    assert run_cli(["validate", workflow, setting]) == 3
    told = capsys.readouterr()
    assert f"error: {key}: no such file: {tmp_path}" in told.err
    assert "not valid; --no-data" in told.out
    assert run_cli(["validate", workflow, setting, "--no-data"]) == 0
    told = capsys.readouterr()
    assert f"warning: {key}: no such file" in told.err
    assert "valid, apart from data that are not here" in told.out


def test_missing_inputs_do_not_hide_other_errors(tmp_path, monkeypatch, capsys):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == "sympy" else find(n))
    settings = [f"data.path={tmp_path / 'none.h5'}"]
    assert run_cli(["validate", "rayleigh_benard", *settings]) == 2
    assert run_cli(["validate", "rayleigh_benard", *settings, "--no-data"]) == 2
    assert "no such file" in capsys.readouterr().err


def test_a_section_that_nothing_reads_is_refused(capsys):
    settings = ["training.epochs=3", "training.optimizer.name=lbfgs"]
    assert run_cli(["validate", "compress_snapshot", *settings]) == 2
    assert "training: unknown key" in capsys.readouterr().err
