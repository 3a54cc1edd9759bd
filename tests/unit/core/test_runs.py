"""A failed start leaves no run, and `--resume` finds the newest run that can be continued."""

from __future__ import annotations

import contextlib
from typing import Annotated

import pytest

from scitoolkit.core.config import load_config
from scitoolkit.core.errors import ConfigError, DataError, NumericalError
from scitoolkit.core.job_config import JobConfig, RunConfig
from scitoolkit.core.resume import FREE_ON_RESUME
from scitoolkit.core.runs import discard_failed_start, open_run, resumed


class DemoConfig(JobConfig):
    domain: str = "demo"
    rate: float = 0.1
    steps: Annotated[int, FREE_ON_RESUME] = 10


@pytest.fixture
def start(tmp_path):
    """Return a function that starts or continues a run; `state` leaves a checkpoint in it."""

    def run(resume=False, state=False, **settings):
        config = DemoConfig(run=RunConfig(root=tmp_path), **settings)
        directory = open_run(config, resume=resume, state="checkpoints/*")
        if state:
            (directory.checkpoints / "step-00000001").mkdir(exist_ok=True)
        return directory

    return run


def test_resume_takes_the_newest_run_of_the_same_settings_with_a_checkpoint(start):
    start(state=True)
    mine = start(state=True)
    start()  # killed before its first checkpoint
    start(state=True, rate=0.5)
    assert start(resume=True).path == mine.path


def test_a_run_killed_before_its_first_checkpoint_starts_again_in_its_directory(start):
    start(state=True, rate=0.5)
    mine = start()
    assert start(resume=True).path == mine.path


def test_only_runs_of_other_settings_are_refused_with_the_difference(start):
    start(state=True, rate=0.5)
    with pytest.raises(ConfigError, match=r"rate: 0\.5 -> 0\.1.*changes in run, steps"):
        start(resume=True)


@pytest.fixture
def trained(start, tmp_path):
    """Return a function that resumes a run with other steps and returns the recorded steps."""

    def resume(end):
        mine = start(state=True, steps=10)
        config = DemoConfig(run=RunConfig(root=tmp_path), steps=20)
        run = open_run(config, resume=True, run_dir=mine.path, state="checkpoints/*")
        with contextlib.suppress(ConfigError, KeyboardInterrupt):
            with resumed(config, run, "checkpoints/*"):
                assert load_config(DemoConfig, run.config_path).steps == 20
                end(run)
        return load_config(DemoConfig, run.config_path).steps

    return resume


def refused(run):
    raise ConfigError("the space differs from that of the log")


def stopped(run):
    raise KeyboardInterrupt


def trained_further(run, then=lambda run: None):
    (run.checkpoints / "step-00000002").mkdir()
    then(run)


def logged_further(run):
    run.log_metrics({"loss": 1.0}, step=3)
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("end", "steps"),
    [
        (lambda run: None, 20),
        (trained_further, 20),
        (lambda run: trained_further(run, stopped), 20),
        (lambda run: trained_further(run, refused), 20),
        (logged_further, 20),
        (refused, 10),
        (stopped, 10),
    ],
)
def test_what_is_free_may_change_and_is_recorded_once_the_run_has_gone_on(trained, end, steps):
    assert trained(end) == steps


def test_a_run_whose_settings_this_version_cannot_read_is_passed_over(start):
    mine = start(state=True)
    start(state=True).config_path.write_text("domain: demo\nformer: 3\n")
    assert start(resume=True).path == mine.path


@pytest.mark.parametrize("error", [DataError("no such file"), ConfigError("does not fit")])
def test_a_failed_start_leaves_nothing(start, error):
    run = start()
    discard_failed_start(run, error)
    assert not run.path.exists()


def test_what_a_run_did_is_kept_whatever_ends_it(start):
    worked, broken = start(state=True), start()
    discard_failed_start(worked, DataError("frame 7 cannot be read"))
    discard_failed_start(broken, NumericalError("NaN"))
    assert worked.path.exists()
    assert broken.path.exists()
