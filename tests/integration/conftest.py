from __future__ import annotations

import functools
from pathlib import Path

import pytest
from coarse_field import write_coarse_field
from command_line import Outcome, run_process

from scitoolkit.cli.main import run_cli

ROOT = Path(__file__).resolve().parents[2]
WORKFLOW = ROOT / "workflows" / "sst_forecast"


@pytest.fixture(scope="session")
def small_sst(tmp_path_factory) -> Path:
    """Real monthly sea-surface temperature, every sixth cell."""
    return write_coarse_field(tmp_path_factory.mktemp("data"))


@pytest.fixture
def cli(tmp_path):
    """Run the command line in a new process, for tests that depend on processes."""
    return functools.partial(run_process, tmp_path)


@pytest.fixture
def command(tmp_path, monkeypatch, capsys):
    """Run the command line in this process: without the seconds in which torch is imported."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str) -> Outcome:
        capsys.readouterr()
        code = run_cli([*map(str, arguments)])
        return Outcome(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="session")
def quick_run(small_sst, tmp_path_factory):
    """Return the folder, arguments and outcome of a short run of the forecasts' workflow."""
    folder = tmp_path_factory.mktemp("quick")
    quick = ("training.epochs=2", "ensemble=1", "harmonics=[2]", "pod.rank=2")
    arguments = ("run", WORKFLOW, f"data.path={small_sst}", *quick, "--json")
    outcome = run_process(folder, *arguments)
    assert outcome.code == 0, outcome.err
    return folder, arguments, outcome
