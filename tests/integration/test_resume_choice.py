"""Resuming after a failed start, as a requeued batch job does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

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


def test_a_restarted_launch_continues_its_own_run_and_no_other(train, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "first")
    assert train("training.steps=2")[0] == 0
    (own,) = runs(tmp_path)
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "second")
    assert train("training.steps=2", "seed=1")[0] == 0
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "first")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    code, out, err = train("training.steps=4")
    assert code == 0, err
    assert "continuing after step 2" in err
    assert Path(out.strip()).resolve() == own.resolve()
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "third")  # restarted before it had begun a run
    code, _, err = train("training.steps=2")
    assert code == 0, err
    assert "continuing" not in err
    assert len(runs(tmp_path)) == 3


SRUN = """#!/bin/sh
while [ "${{1#--}}" != "$1" ]; do shift; done
[ "$1" = scitoolkit ] && shift
export SLURM_PROCID=0 SLURM_NTASKS=1 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_NODELIST=localhost
{python} -m scitoolkit "$@" {settings} &
rank=$!
if [ "${{SLURM_RESTART_COUNT:-0}}" = 0 ]; then
  until ls -d runs/*/*/checkpoints/step-* >/dev/null 2>&1; do sleep 0.1; done
  kill -USR1 $rank
fi
wait $rank
"""


@pytest.mark.slow
def test_slurm_requeues_a_job_which_ends_with_the_bits_of_one_that_nothing_stopped(
    small_sst, tmp_path
):
    """The script, a signal before time runs out, `scontrol requeue`, and the job's second start."""
    settings = (
        f"data.path={small_sst} ensemble=1 harmonics=[2] pod.rank=2 training.steps=400 "
        "training.checkpoint.every_steps=20 training.early_stopping=null training.strategy=single"
    )
    requeued = tmp_path / "requeued"
    for name, text in (
        ("srun", SRUN.format(python=sys.executable, settings=settings)),
        ("scontrol", f'#!/bin/sh\n[ "$1" = requeue ] && echo "$2" > {requeued}\n'),
    ):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)

    def job(number: int, restarts: int) -> int:
        environment = {
            **os.environ,
            "PATH": f"{tmp_path}:{os.environ['PATH']}",
            "OMP_NUM_THREADS": "1",
            "SLURM_JOB_ID": str(number),
            "SLURM_RESTART_COUNT": str(restarts),
            "SLURM_SUBMIT_DIR": str(tmp_path),
        }
        script = ["bash", str(WORKFLOW / "launch" / "slurm.sbatch")]
        return subprocess.run(script, env=environment, check=False, capture_output=True).returncode

    (tmp_path / "workflows").symlink_to(WORKFLOW.parent)
    assert job(7, 0) == 130
    assert requeued.read_text().strip() == "7"
    (stopped,) = runs(tmp_path)
    assert job(7, 1) == 0
    assert runs(tmp_path) == [stopped]
    assert "continuing after step" in (stopped / "run.log").read_text()
    assert job(8, 1) == 0  # another job, restarted before its run existed: a new run
    whole = runs(tmp_path)[1]
    assert "continuing" not in (whole / "run.log").read_text()
    ends = [sorted(run.glob("checkpoints/step-*"))[-1] for run in (stopped, whole)]
    assert ends[0].name == ends[1].name
    pairs = [sorted(end.glob("*.safetensors")) for end in ends]
    assert pairs[0]
    for one, two in zip(*pairs, strict=True):
        tensors = [load_file(path) for path in (one, two)]
        assert tensors[0].keys() == tensors[1].keys()
        assert all(torch.equal(tensors[0][k], tensors[1][k]) for k in tensors[0])


@pytest.mark.multiproc
def test_a_failed_start_of_two_ranks_leaves_no_run(cli, tmp_path):
    settings = ("training.strategy=ddp", "data.path=typo.nc", "--nproc", "2")
    outcome = cli("train", WORKFLOW, *settings)
    assert outcome.code == 3, outcome.err
    assert not any((tmp_path / "runs").rglob("config.yaml"))
