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


def test_missing_data_are_a_warning(tmp_path, capsys):
    assert run_cli(["validate", "sst_forecast", f"data.path={tmp_path / 'none.nc'}"]) == 0
    assert "warning: data.path: no such file" in capsys.readouterr().err


def test_a_section_that_nothing_reads_is_refused(capsys):
    settings = ["training.epochs=3", "training.optimizer.name=lbfgs"]
    assert run_cli(["validate", "compress_snapshot", *settings]) == 2
    assert "training: unknown key" in capsys.readouterr().err
