"""The log of a run."""

from __future__ import annotations

import io
import logging
import shutil
import subprocess
import sys

import pytest

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import LOGGER_NAME, get_logger, log_to_file, setup_logging


def test_a_run_directory_that_is_removed_ends_its_log_and_not_the_program(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    logger = logging.getLogger(LOGGER_NAME)
    with log_to_file(folder / "run.log"):
        shutil.rmtree(folder)
        get_logger(f"{LOGGER_NAME}.test").warning("one")
        assert not any(isinstance(h, logging.FileHandler) for h in logger.handlers)
    folder.mkdir()
    with log_to_file(folder / "run.log"):
        get_logger(f"{LOGGER_NAME}.test").warning("two")
    assert "two" in (folder / "run.log").read_text()


def test_a_run_logs_neither_into_the_previous_run_nor_after_its_end(tmp_path):
    log = get_logger(f"{LOGGER_NAME}.test")
    for name in ("first", "second"):
        with log_to_file(tmp_path / name):
            log.warning(name)
    log.warning("third")
    for name in ("first", "second"):
        (line,) = (tmp_path / name).read_text().splitlines()
        assert line.endswith(name)


def test_the_error_that_ends_a_run_is_the_last_line_of_its_log(tmp_path, capsys):
    with pytest.raises(DataError), log_to_file(tmp_path / "run.log"):
        raise DataError("100% damaged", where="a.nc")
    with pytest.raises(KeyboardInterrupt), log_to_file(tmp_path / "run.log"):
        raise KeyboardInterrupt
    damaged, interrupted = (tmp_path / "run.log").read_text().splitlines()
    assert damaged.endswith("ERROR a.nc: 100% damaged")
    assert interrupted.endswith("ERROR KeyboardInterrupt")
    assert not capsys.readouterr().err


def test_a_script_without_logging_gets_a_log_of_the_run_and_sees_warnings(tmp_path):
    script = f"""
from scitoolkit.core.log import get_logger, log_to_file
log = get_logger("scitoolkit.test")
with log_to_file(__import__("pathlib").Path({str(tmp_path / "run.log")!r})):
    log.info("progress")
    log.warning("trouble")
log.info("ended")
log.warning("after")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.stderr == "trouble\nafter\n"
    lines = (tmp_path / "run.log").read_text().splitlines()
    assert [line.split()[-1] for line in lines] == ["progress", "trouble"]


def test_a_full_disk_ends_the_log_and_not_the_program(tmp_path, capsys, monkeypatch):
    logger = logging.getLogger(LOGGER_NAME)
    with log_to_file(tmp_path / "run.log"):
        handler = logger.handlers[-1]
        get_logger(f"{LOGGER_NAME}.test").warning("one")
        file = handler.stream

        def full():
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(handler, "flush", full)
        get_logger(f"{LOGGER_NAME}.test").warning("two")
        assert handler not in logger.handlers
        assert file.closed
    assert "Logging error" not in capsys.readouterr().err


def test_ranks_that_srun_started_log_warnings_alone(monkeypatch, capsys):
    for name, value in {
        "SLURM_PROCID": "3",
        "SLURM_STEP_NODELIST": "n1",
        "SLURM_STEP_NUM_TASKS": "4",
    }.items():
        monkeypatch.setenv(name, value)
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    setup_logging()
    get_logger(LOGGER_NAME).info("progress")
    get_logger(LOGGER_NAME).warning("trouble")
    assert capsys.readouterr().err == "[rank 3] trouble\n"


def test_the_log_goes_to_the_stderr_of_the_moment(monkeypatch):
    first, second = io.StringIO(), io.StringIO()
    monkeypatch.setattr("sys.stderr", first)
    setup_logging(rank=0)
    get_logger(LOGGER_NAME).info("one")
    first_text = first.getvalue()
    first.close()  # what a notebook's cell or a test runner does at its end
    monkeypatch.setattr("sys.stderr", second)
    get_logger(LOGGER_NAME).info("two")
    monkeypatch.setattr("sys.stderr", None)  # a program without a console
    get_logger(LOGGER_NAME).info("three")
    assert (first_text, second.getvalue()) == ("one\n", "two\n")
