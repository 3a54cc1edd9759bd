"""The log of a run."""

from __future__ import annotations

import logging
import shutil

from scitoolkit.core.log import (
    LOGGER_NAME,
    close_log_files,
    get_logger,
    log_to_file,
    setup_logging,
)


def test_a_run_directory_that_is_removed_ends_its_log_and_not_the_program(tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    log_to_file(folder / "run.log")
    shutil.rmtree(folder)
    before = list(logging.getLogger(LOGGER_NAME).handlers)
    get_logger(f"{LOGGER_NAME}.test").warning("one")
    assert len(logging.getLogger(LOGGER_NAME).handlers) == len(before) - 1
    folder.mkdir()
    log_to_file(folder / "run.log")
    get_logger(f"{LOGGER_NAME}.test").warning("two")
    close_log_files(folder)
    assert "two" in (folder / "run.log").read_text()


def test_a_full_disk_ends_the_log_and_not_the_program(tmp_path, capsys, monkeypatch):
    logger = logging.getLogger(LOGGER_NAME)
    monkeypatch.setattr(logger, "handlers", [])  # others write to what pytest has closed
    log_to_file(tmp_path / "run.log")
    (handler,) = logger.handlers
    get_logger(f"{LOGGER_NAME}.test").warning("one")

    def full():
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(handler, "flush", full)
    get_logger(f"{LOGGER_NAME}.test").warning("two")
    assert handler not in logger.handlers
    monkeypatch.undo()
    handler.close()
    assert "Logging error" not in capsys.readouterr().err


def test_ranks_that_srun_started_log_warnings_alone(monkeypatch, capsys):
    for name, value in {
        "SLURM_PROCID": "3", "SLURM_STEP_NODELIST": "n1", "SLURM_STEP_NUM_TASKS": "4",
    }.items():  # fmt: skip
        monkeypatch.setenv(name, value)
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    setup_logging()
    get_logger(LOGGER_NAME).info("progress")
    get_logger(LOGGER_NAME).warning("trouble")
    assert capsys.readouterr().err == "[rank 3] trouble\n"
