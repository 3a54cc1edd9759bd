"""Resuming after a failed start, as a requeued batch job does."""

from __future__ import annotations

from pathlib import Path

import pytest

from scitoolkit.cli.main import run_cli

WORKFLOW = Path(__file__).resolve().parents[2] / "workflows" / "sst_forecast"


@pytest.fixture
def train(small_sst, tmp_path, monkeypatch, capfd):
    """Train the forecast in `tmp_path`; return exit code, stdout and stderr."""
    monkeypatch.chdir(tmp_path)
    settings = (f"data.path={small_sst}", "ensemble=1", "harmonics=[2]", "pod.rank=2")

    def run(*arguments: str) -> tuple[int, str, str]:
        code = run_cli(["train", str(WORKFLOW), *settings, *arguments])
        return code, *capfd.readouterr()

    return run


def runs(tmp_path) -> list[Path]:
    return sorted((tmp_path / "runs" / "sst_forecast").iterdir())


def test_a_mistyped_path_is_no_run_that_resume_would_take(train, tmp_path):
    assert train("training.steps=2")[0] == 0
    begun = runs(tmp_path)
    code, _, err = train("data.path=typo.nc")
    assert (code, "typo.nc" in err, "Traceback" in err) == (3, True, False)
    assert runs(tmp_path) == begun
    code, out, err = train("training.steps=4", "training.timeout_seconds=60", "--resume")
    assert code == 0, err
    assert "continuing after step 2" in err
    assert Path(out.strip()).resolve() == begun[0].resolve()
    assert runs(tmp_path) == begun


@pytest.mark.multiproc
def test_a_failed_start_of_two_ranks_leaves_no_run(cli, tmp_path):
    settings = ("training.strategy=ddp", "data.path=typo.nc", "--nproc", "2")
    outcome = cli("train", WORKFLOW, *settings)
    assert outcome.code == 3, outcome.err
    assert not any((tmp_path / "runs").rglob("config.yaml"))
