"""Logging to stderr and run.log by rank 0; stdout is reserved for results."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from scitoolkit.core.processes import current_rank

LOGGER_NAME = "scitoolkit"


def get_logger(name: str = "") -> logging.Logger:
    """Return the logger of a module: `get_logger(__name__)`."""
    return logging.getLogger(name or LOGGER_NAME)


def setup_logging(*, verbose: bool = False, rank: int | None = None) -> None:
    """Send the toolkit's log to stderr; ranks other than 0 log only warnings and errors."""
    rank = current_rank() if rank is None else rank
    logger = logging.getLogger(LOGGER_NAME)
    for old in list(logger.handlers):  # close the previous run's file now, not when collected
        logger.removeHandler(old)
        old.close()
    logger.propagate = False
    handler = logging.StreamHandler(sys.stderr)
    prefix = f"[rank {rank}] " if rank else ""
    handler.setFormatter(logging.Formatter(f"{prefix}%(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING if rank else logging.DEBUG if verbose else logging.INFO)


class _RunLog(logging.FileHandler):
    """Log file of a run; if it cannot be written, it is dropped and the program continues."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or drop the file if it cannot be opened."""
        try:
            super().emit(record)
        except OSError:  # the file is opened at the first record
            logging.getLogger(LOGGER_NAME).removeHandler(self)

    def handleError(self, record: logging.LogRecord) -> None:
        """Drop the file if the disk is full; let logging report other failures."""
        if isinstance(sys.exc_info()[1], OSError):
            logging.getLogger(LOGGER_NAME).removeHandler(self)
        else:
            super().handleError(record)


def log_to_file(path: Path) -> None:
    """Also append the log, with timestamps, to a file in the run directory."""
    handler = _RunLog(path, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    logging.getLogger(LOGGER_NAME).addHandler(handler)


def close_log_files(folder: Path) -> None:
    """Stop logging to files in `folder`."""
    logger = logging.getLogger(LOGGER_NAME)
    for handler in list(logger.handlers):
        if isinstance(handler, logging.FileHandler):
            if Path(handler.baseFilename).parent == folder.resolve():
                logger.removeHandler(handler)
                handler.close()
