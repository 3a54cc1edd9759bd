"""Logging to stderr and run.log by rank 0; stdout is reserved for results."""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Iterator
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
    handler = _ToStderr()
    prefix = f"[rank {rank}] " if rank else ""
    handler.setFormatter(logging.Formatter(f"{prefix}%(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.WARNING if rank else logging.DEBUG if verbose else logging.INFO)


class _ToStderr(logging.StreamHandler):
    """Write records to what is stderr at that moment.

    Notebooks and test runners replace `sys.stderr` by a stream that they close afterwards, so a
    stream that is remembered from the set-up may be closed at the next record.
    """

    stream = property(lambda _: sys.stderr, lambda *_: None)


class _RunLog(logging.FileHandler):
    """Log file of a run; if it cannot be written, it is dropped and the program continues."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or drop the file if it cannot be opened."""
        try:
            super().emit(record)
        except OSError:  # the file is opened at the first record
            self.drop()

    def handleError(self, record: logging.LogRecord) -> None:
        """Drop the file if the disk is full; let logging report other failures."""
        if isinstance(sys.exc_info()[1], OSError):
            self.drop()
        else:
            super().handleError(record)

    def drop(self) -> None:
        """Stop logging to the file and close it."""
        logging.getLogger(LOGGER_NAME).removeHandler(self)
        with contextlib.suppress(OSError):  # a full disk also refuses what is still in the buffer
            self.close()


class _ToRoot(logging.Handler):
    """Pass records to the root logger, which writes warnings to stderr if it has no handler."""

    def emit(self, record: logging.LogRecord) -> None:
        """Let the handlers of the root logger write a record."""
        logging.getLogger().callHandlers(record)


@contextlib.contextmanager
def log_to_file(path: Path) -> Iterator[None]:
    """Also append the log, with timestamps, to a file in the run directory, during a `with`.

    The file contains the progress of a job also if it was started from Python and logging is not
    configured there; the handlers of the caller get the same records as without the file. An error
    that ends the job is its last line.
    """
    logger = logging.getLogger(LOGGER_NAME)
    file = _RunLog(path, encoding="utf-8", delay=True)
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    level, propagate, to_root = logger.level, logger.propagate, _ToRoot(logger.getEffectiveLevel())
    if propagate:
        logger.addHandler(to_root)
        logger.propagate = False
        logger.setLevel(level or logging.INFO)
    logger.addHandler(file)  # last: a handler that drops itself hides the record from the next one
    try:
        yield
    except BaseException as error:  # the caller prints it; the file also needs the reason
        how = logging.ERROR, "", 0, str(error) or type(error).__name__, (), None
        file.handle(logging.LogRecord(LOGGER_NAME, *how))
        raise
    finally:
        file.drop()
        logger.removeHandler(to_root)
        logger.propagate = propagate
        logger.setLevel(level)
